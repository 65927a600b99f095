"""The embedded server as a process under test.

Rule of this file: it is ended by its pid, whatever the test did, and by the kernel when the test
program itself is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.apache import free_port
from tests.waiting import wait_until

__all__ = ["EmbeddedServer"]


class EmbeddedServer:
    """`python -m incumbent.server` on a directory of its own. A context manager: `with` starts it.

    data  its data directory, `data` in `directory` unless given
    tick  seconds
    port  None takes a free one, kept over restarts
    """

    host = "127.0.0.1"

    def __init__(
        self,
        directory: Path,
        *,
        tick: float = 2.0,
        port: int | None = None,
        data: Path | None = None,
    ) -> None:
        self.directory = directory
        self.data = data or directory / "data"
        self.tick = tick
        self.port = port or free_port(self.host)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; return when it listens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "incumbent.server", "--parent-death", str(os.getpid())]
        command += ["--data", str(self.data), "--listen", self.hosts, "--tick", str(self.tick)]
        ready, their_end = os.pipe()
        try:
            with (self.directory / "server.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [*command, "--ready-fd", str(their_end)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(their_end,),
                    start_new_session=True,
                )
            os.close(their_end)
            line = os.read(ready, 100)
        finally:
            os.close(ready)
        assert line, f"the server did not start:\n{self.output()}"

    def kill(self, signum: int = signal.SIGKILL) -> int | None:
        """End it by a signal; its exit code once it is gone, None if it was not running."""
        if self._process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signum)
        code = self._process.wait(20)
        self._process = None
        return code

    def restart(self) -> None:
        self.kill()
        self.start()

    def output(self) -> str:
        """Everything it printed."""
        return (self.directory / "server.log").read_text(errors="replace")

    def wait_for_output(self, text: str, timeout: float = 10.0) -> None:
        wait_until(lambda: text in self.output(), timeout, f"the server to say {text!r}")
