"""Programs as somebody starts them in terminals, and a server of ours for them.

Rule of this file: everything started here is ended by its pid when its `with` ends, whatever
the test did; when the test program itself is killed, the kernel ends it. A server outlives what
needs it to end in order, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.children import ends_with_us
from tests.waiting import wait_until

__all__ = ["Terminal", "Terminals", "our_server"]

_PARTING = 5.0
"""Seconds that agents of killed guardians have to close their sessions."""


class Terminal:
    """One program in its own process group; what it printed is read from files."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, folder: Path) -> None:
        self.process = process
        self.name = name
        self._folder = folder

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def lines(self) -> list[str]:
        """The whole lines on its stdout so far."""
        return _whole_lines(self._folder / f"{self.name}.out")

    def complaints(self) -> list[str]:
        """Those on its stderr."""
        return _whole_lines(self._folder / f"{self.name}.err")

    def wait_for(self, text: str, timeout: float = 10.0, *, after: int = 0) -> int:
        """Wait for a line with `text` on stdout, behind the first `after`; returns its number."""
        return wait_until(
            lambda: next(
                (i for i, line in enumerate(self.lines(), 1) if i > after and text in line), 0
            ),
            timeout,
            f"{self.name} to print {text!r}; it printed {self.lines()} {self.complaints()}",
        )

    def wait_for_complaint(self, text: str, timeout: float = 10.0) -> None:
        wait_until(
            lambda: any(text in line for line in self.complaints()),
            timeout,
            f"{self.name} to say {text!r} on stderr",
        )

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def ends(self, timeout: float = 10.0) -> int:
        """Wait until it has ended; returns its exit code."""
        return self.process.wait(timeout)

    def end(self, signum: int = signal.SIGINT, timeout: float = 10.0) -> int:
        """Signal it, as Ctrl-C does, and wait until it has ended."""
        self.send(signum)
        return self.ends(timeout)

    def kill(self) -> None:
        """SIGKILL to its process group, unless it has ended."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait(10)


class Terminals:
    """`with Terminals(tmp_path) as terminals`, then `terminals.start("first", [...])`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[Terminal] = []
        self._servers: list[Terminal] = []
        self._life = os.pipe()  # all but the servers have its writing end, as have we

    def __enter__(self) -> Terminals:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in self._all:
            if terminal not in self._servers:
                terminal.kill()
        os.close(self._life[1])
        for server in self._servers:
            with suppress(subprocess.TimeoutExpired):  # then something hangs, and goes without it
                server.ends(_PARTING)
            server.kill()
        os.close(self._life[0])

    def start(
        self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None
    ) -> Terminal:
        """Start `command`; `env` is added to our environment."""
        return self._start(name, command, env, self._life[1], ends_with_us())

    def server(self, name: str, *arguments: str | Path) -> Terminal:
        """Start `incumbent server` with `arguments`; it listens when this returns."""
        until = ("--until-fd", str(self._life[0]))
        command = [sys.executable, "-P", "-m", "incumbent.server", *arguments, *until]
        server = self._start(name, command, None, self._life[0], None)
        self._servers.append(server)
        server.wait_for("listening on")
        return server

    def _start(
        self,
        name: str,
        command: Sequence[str | Path],
        env: Mapping[str, str] | None,
        pass_fd: int,
        preexec: Callable[[], None] | None,
    ) -> Terminal:
        with (
            (self.folder / f"{name}.out").open("wb") as out,
            (self.folder / f"{name}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                pass_fds=(pass_fd,),
                preexec_fn=preexec,
            )
        terminal = Terminal(process, name, self.folder)
        self._all.append(terminal)
        return terminal

    def python(self, name: str, *arguments: str | Path, **options: object) -> Terminal:
        """Start this Python with `arguments`."""
        return self.start(name, [sys.executable, *arguments], **options)  # type: ignore[arg-type]


@contextmanager
def our_server(folder: Path, *, tick: float = 0.1, port: int = 0) -> Iterator[str]:
    """An Incumbent server in `folder`; yields its HOST:PORT."""
    folder.mkdir(parents=True, exist_ok=True)
    with Terminals(folder) as terminals:
        server = terminals.server(
            "server",
            *("--data", folder / "data", "--listen", f"127.0.0.1:{port}", "--tick", str(tick)),
        )
        yield server.lines()[0].removeprefix("listening on ")


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text(errors="replace")
    return text[: text.rfind("\n") + 1].splitlines()
