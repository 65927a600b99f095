"""What goes in at stdin and out at stdout of a command: any bytes, a full disk, a reader who has gone,
descriptors that are closed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import INCUMBENT
from tests.e2e.terminals import our_server
from tests.waiting import wait_until

from incumbent import sync

Words = tuple[str | bytes, ...]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


class Shell:
    """`incumbent …` as a shell runs it, with what it is redirected to; and our own eyes: `zk`."""

    def __init__(self, hosts: str, zk: sync.Zk) -> None:
        self.zk = zk
        self.environ = {**os.environ, "INCUMBENT_ZOOKEEPER": hosts}

    def run(
        self, *words: str | bytes, to: str = "", given: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {to}', "sh", *INCUMBENT, *words],
            input=given,
            capture_output=True,
            env={**self.environ, **environ},
            timeout=30,
        )
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr
        return done

    def script(self, text: str) -> subprocess.CompletedProcess[bytes]:
        """In which "$@" stands for `incumbent`."""
        return subprocess.run(
            ["sh", "-c", text, "sh", *INCUMBENT],
            env=self.environ,
            stderr=subprocess.PIPE,
            timeout=30,
        )


@pytest.fixture
def shell(server: str) -> Iterator[Shell]:
    with sync.connect(server) as zk:
        for name in zk.children("/"):
            if name != "zookeeper":
                zk.delete(f"/{name}", recursive=True)
        zk.create("/some", b"data")
        yield Shell(server, zk)


PRINTING: list[Words] = [
    ("zk", "get", "/some"),
    ("zk", "get", "/some", "-o", "json"),
    ("zk", "ls"),
    ("zk", "ls", "-l"),
    ("zk", "tree"),
    ("zk", "stat", "/some"),
    ("zk", "acl", "/some"),
    ("zk", "cp", "zk:/some", "-"),
    ("zk", "set", "/some", "new"),
    ("config", "set", "key", "value"),
    ("once", "key", "--history"),
    ("once", "key", "--history", "-o", "json"),
    ("work", "parked", "--path", "/work", "-o", "json"),
    ("--version",),
    ("--help",),
]
READING: list[Words] = [
    ("zk", "set", "/some", "-"),
    ("zk", "create", "/other", "-"),
    ("zk", "cp", "-", "zk:/other"),
    ("queue", "put", "jobs", "-"),
    ("queue", "put", "jobs", "-", "--lines"),
    ("config", "set", "key", "-"),
]


@pytest.mark.parametrize("words", PRINTING, ids=lambda words: " ".join(words))
@pytest.mark.parametrize(
    ("to", "why"), [(">/dev/full", b"no space left"), (">&-", b"it is closed")]
)
def test_what_cannot_be_printed_is_one_line_and_exit_code_1(
    shell: Shell, words: Words, to: str, why: bytes
) -> None:
    run = {"period": "", "state": "done", "node": "n", "pid": 1, "nonce": "", "token": 1}
    record = {"v": 1, "runs": [{**run, "started": 1.0}]}
    shell.zk.create("/incumbent/once/key", json.dumps(record).encode(), parents=True)

    done = shell.run(*words, to=to)

    assert done.returncode == 1
    assert done.stderr.startswith(b"incumbent: stdout takes nothing more: " + why)
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(words))
def test_a_stdin_that_is_closed_changes_nothing(shell: Shell, words: Words) -> None:
    done = shell.run(*words, to="<&-")

    assert done.returncode == 1
    assert b"incumbent: stdin cannot be read: it is closed" in done.stderr
    assert shell.zk.get("/some")[0] == b"data"
    assert shell.zk.exists("/other") is None


def test_a_reader_who_has_enough_is_no_failure(shell: Shell) -> None:
    shell.zk.create("/big", b"\n" * 500_000)
    for number in range(300):
        shell.zk.create(f"/some/{'n' * 200}{number}")

    for words in (
        "zk get /big",
        "zk cp zk:/big -",
        "zk ls /some",
        "zk tree",
        "zk ls /some -o json",
    ):
        done = shell.script(f'("$@" {words}; echo "exit code $?" >&2) | head -c 1 >/dev/null')
        assert done.stderr == b"exit code 0\n", words


def test_what_is_said_never_goes_to_a_connection_in_the_place_of_stderr(shell: Shell) -> None:
    assert shell.run("zk", "get", "/not/there", to="2>&-").returncode == 1
    assert shell.run("zk", "get", "/some", to="2>&- <&-").stdout == b"data"
    assert shell.run("zk", "set", "/not/there", "x", to="2>&- >&- <&-").returncode == 1
    assert shell.run("lock", "mine", "--", "true", to="2>&- >&- <&-").returncode == 0


def test_an_argument_is_data_byte_for_byte(shell: Shell) -> None:
    shell.run("zk", "set", "/some", b"\xff\xfe\xc3\xa9")
    shell.run("queue", "put", "jobs", b"\xff")

    assert shell.zk.get("/some")[0] == b"\xff\xfe\xc3\xa9"
    assert shell.run("queue", "take", "jobs").stdout == b"\xff\n"
    refused = shell.run("zk", "create", b"/\xff")
    assert refused.returncode == 2
    assert b"is no znode's path" in refused.stderr


def test_names_are_printed_whatever_stdout_is_said_to_take(shell: Shell) -> None:
    shell.zk.create("/some/über")

    listed = shell.run("zk", "ls", "/some", "-l", PYTHONIOENCODING="ascii")
    as_json = shell.run("zk", "ls", "/some", "-o", "json", PYTHONIOENCODING="ascii")

    assert listed.returncode == 0
    assert b"ber" in listed.stdout
    assert json.loads(as_json.stdout.decode()) == ["über"]


def test_a_config_value_that_is_no_text_is_refused_and_sets_nothing(shell: Shell) -> None:
    shell.run("config", "set", "key", "before")

    by_stdin = shell.run("config", "set", "key", "-", given=b"\xff")
    by_argument = shell.run("config", "set", "key", b"\xff")
    shell.run("config", "set", "lines", "-", given=b"a\r\nb")

    assert (by_stdin.returncode, by_argument.returncode) == (2, 2)
    assert b"is no UTF-8 text" in by_stdin.stderr
    assert shell.run("config", "get", "key").stdout == b"before\n"
    assert shell.run("config", "get", "lines").stdout == b"a\r\nb\n"


def test_ctrl_c_ends_a_put_that_waits_for_lines_and_says_how_many_were_put(shell: Shell) -> None:
    putting = subprocess.Popen(
        [*INCUMBENT, "queue", "put", "jobs", "-", "--lines"],
        env=shell.environ,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert putting.stdin is not None
    putting.stdin.write(b"one\ntwo\nthr")
    putting.stdin.flush()
    queue = "/incumbent/queues/jobs"
    wait_until(lambda: shell.zk.exists(queue) and len(shell.zk.children(queue)) == 2)

    putting.send_signal(signal.SIGINT)
    _, said = putting.communicate(timeout=10)

    assert putting.returncode == 130
    assert said == b"incumbent: 2 items put into /incumbent/queues/jobs before that\n"
    taken = shell.run("queue", "take", "jobs", "--count", "2")
    assert taken.stdout == b"one\ntwo\n"


def test_too_much_at_once_is_refused_and_is_no_matter_of_reaching_zookeeper(shell: Shell) -> None:
    much = b"x" * 2_000_000

    single = shell.run("zk", "set", "/some", "-", given=much)
    lines = shell.run("queue", "put", "jobs", "-", "--lines", given=b"small\n" + much)

    assert (single.returncode, lines.returncode) == (1, 1)
    assert b"the limit is" in single.stderr
    assert b"1 item put into" in lines.stderr
    assert shell.zk.get("/some")[0] == b"data"


def test_a_folder_that_leads_back_to_itself_is_not_copied(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "back").symlink_to(tmp_path)

    done = shell.run("zk", "cp", "-r", str(tmp_path), "zk:/copy")

    assert done.returncode == 1
    assert b"leads back to" in done.stderr
    assert shell.zk.exists("/copy") is None


def test_what_is_neither_file_nor_folder_is_left_out_and_said(shell: Shell, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("text")
    (tmp_path / "twice").symlink_to(tmp_path / "file")

    done = shell.run("zk", "cp", "-r", str(tmp_path), "zk:/copy")

    assert done.returncode == 0
    assert b"pipe is left out" in done.stderr
    assert sorted(shell.zk.children("/copy")) == ["file", "twice"]


def test_a_copy_that_fails_on_its_way_says_how_far_it_came(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("small")
    (tmp_path / "b").write_bytes(b"x" * 2_000_000)

    done = shell.run("zk", "cp", "-r", str(tmp_path), "zk:/copy")

    assert done.returncode == 1
    assert b"2 of 3 znodes were written before that" in done.stderr


@pytest.mark.parametrize(("words", "code"), [("zk ls", 2), ("up", 2), ("lock a -- true", 125)])
def test_a_folder_that_is_gone_is_said(shell: Shell, tmp_path: Path, words: str, code: int) -> None:
    gone = tmp_path / "gone"

    done = shell.script(f'mkdir {gone}; cd {gone}; rmdir {gone}; exec "$@" {words}')

    assert done.returncode == code
    assert done.stderr.startswith(b"incumbent: the folder that this was started in is gone; cd to")


def test_in_a_folder_that_is_gone_the_help_is_there(shell: Shell, tmp_path: Path) -> None:
    gone = tmp_path / "gone"

    done = shell.script(f'mkdir {gone}; cd {gone}; rmdir {gone}; exec "$@" --help >/dev/null')

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_wrong_call_behind_two_dashes_is_no_success(shell: Shell) -> None:
    assert shell.run("--", "lock").returncode == 125
