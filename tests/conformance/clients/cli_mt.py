"""Drives the C client's command line, `cli_mt`: a command once the last one was answered.

    python cli_mt.py HOST:PORT

Its commands are asynchronous, so that commands sent at once may be answered by a client that is
not connected yet.
"""

import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Callable

PROGRAM = "/usr/lib/zookeeper/bin/cli_mt"

COMMANDS = """\
create /k
create +e /k/e
create +s /k/s-
create +es /k/es-
create +c /k/box
create2 /k/two
create /k
create /none/x
create /k/e/x
set /k hello
get /k
get /none
ls /k
create /k/later
sync /k
aget /k
aset /k other
als /k
delete /k
delete /k/e
delete /none
acreate /k/async
adelete /k/async
delete /k/box
delete /k/two
delete /k/later
delete /k/s-0000000001
delete /k/es-0000000002
delete /k
"""

_NOISE = re.compile(
    r"^time = |^Got a new session id|^Watcher SESSION_EVENT|^Quitting|^Creating |^\d{4}-\d\d-\d\d "
)
_UNEQUAL = re.compile(r"((?:zxid|time|ephemeralOwner)\s*=\s*)(?![0\s]).+")
_NAME = re.compile(r"\t[^=]+")


class Cli:
    """The process, and the lines that it printed."""

    def __init__(self, hosts: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._process = subprocess.Popen(
            ["stdbuf", "-oL", PROGRAM, "-h", hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def wait_for(self, is_there: Callable[[str], bool], after: int = 0) -> None:
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._is_over or any(map(is_there, self.lines[after:])), 15
            ):
                raise SystemExit("waited in vain; it said:\n" + "\n".join(self.lines))

    def end(self) -> int:
        self.tell("quit")
        return self._process.wait(15)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def main(hosts: str) -> int:
    cli = Cli(hosts)
    cli.wait_for(lambda line: line.startswith("Got a new session id"))
    for command in COMMANDS.splitlines():
        before = len(cli.lines)
        cli.tell(command)
        cli.wait_for(lambda line: "rc = " in line, before)
    code = cli.end()
    events = [line for line in cli.lines if line.startswith("Watcher ")]  # at any time
    kept = [line for line in cli.lines if line not in events] + events
    for are_names, lines in itertools.groupby(filter(is_said, kept), is_name):
        for line in sorted(lines) if are_names else lines:  # names come in any order
            print(_UNEQUAL.sub(r"\1…", line))
    return code


def is_name(line: str) -> bool:
    return _NAME.fullmatch(line) is not None


def is_said(line: str) -> bool:
    return not _NOISE.search(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
