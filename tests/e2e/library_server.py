"""The embedded server as a process of its own, for tests of the library.

Rule of this file: started by its command line, ended by its pid.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ServerProcess"]


class ServerProcess:
    """`python -m incumbent.server` on a free port; a context manager. `hosts` is where it listens."""

    def __init__(self, directory: Path, *, python: str = sys.executable, tick: float = 0.5) -> None:
        self._command = [python, "-m", "incumbent.server", "--data", str(directory / "zk")]
        self._command += ["--listen", "127.0.0.1:0", "--tick", str(tick)]
        self._command += ["--parent-death", str(os.getpid())]
        self._log = directory / "server.log"
        self.hosts = ""

    def __enter__(self) -> ServerProcess:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            self._process.kill()
            self._process.wait(10)
            raise AssertionError(f"the server said {line!r}: {self._log.read_text()}")
        self.hosts = line.removeprefix("listening on ").strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
