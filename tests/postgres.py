"""Debian's PostgreSQL under test, in a directory of its own, on a free port.

Rule of this file: every server started here is ended by its pid, whatever the test did; the
kernel ends it when the test program itself is killed.

Needs the package `postgresql` (`apt-get install postgresql`). It refuses to run as root, so root
starts it as the user `postgres`, which the package makes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.apache import free_port
from tests.children import ends_with_us
from tests.waiting import wait_until

__all__ = ["PostgresServer", "postgres_missing"]

_LIB = Path("/usr/lib/postgresql")
_SETTINGS = {"max_connections": 60, "shared_buffers": "32MB", "logging_collector": "off"}


def _programs() -> Path | None:
    """The folder with `initdb` and `postgres`, of the newest version that is installed."""
    found = sorted(_LIB.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def postgres_missing() -> str | None:
    """Why PostgreSQL cannot be started here, or None if it can."""
    return None if _programs() else "no PostgreSQL (apt-get install postgresql)"


class PostgresServer:
    """One PostgreSQL server. A context manager: `with` makes its directory and starts it."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        programs = _programs()
        assert programs is not None, postgres_missing()
        self._programs = programs
        self.port = free_port(self.host)
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.directory = Path(tempfile.mkdtemp(prefix="incumbent-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://{self._user}@{self.host}:{self.port}/postgres"

    def __enter__(self) -> PostgresServer:
        if os.geteuid() == 0:
            shutil.chown(self.directory, self._user)
        data = self.directory / "data"
        made = subprocess.run(
            [self._programs / "initdb", "-D", data, "-A", "trust", "-N", "--no-instructions"],
            **self._as_user(),
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.directory / "data")]
        command += ["-p", str(self.port), "-h", self.host, "-k", str(self.directory)]
        for key, value in _SETTINGS.items():
            command += ["-c", f"{key}={value}"]
        with (self.directory / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=ends_with_us(),
                **self._as_user(),
            )
        wait_until(self._is_ready, 60, f"PostgreSQL on port {self.port} to take connections")

    def restart(self) -> None:
        """As a crash does it: connections are cut, committed transactions stay."""
        self.stop(signal.SIGQUIT)
        self.start()

    def stop(self, signum: int = signal.SIGINT) -> None:
        """SIGINT: clients are disconnected, what is committed is written down."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signum)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _is_ready(self) -> bool:
        process = self._process
        assert process is not None and process.poll() is None, (
            f"PostgreSQL ended at start:\n{(self.directory / 'out.log').read_text()}"
        )
        asked = subprocess.run(
            [self._programs / "pg_isready", "-q", "-h", self.host, "-p", str(self.port)],
            check=False,
        )
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1):
            return asked.returncode == 0
        return False

    def _as_user(self) -> dict[str, Any]:
        cwd = {"cwd": self.directory}
        if os.geteuid() != 0:
            return cwd
        return {
            **cwd,
            "user": self._user,
            "group": pwd.getpwnam(self._user).pw_gid,
            "extra_groups": [],
        }
