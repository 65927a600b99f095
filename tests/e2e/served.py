"""The embedded server as a process with any settings, for tests of its operation.

Rule of this file: started by its command line, ended by its pid; every wait has a deadline.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.apache import four_letters, free_port

__all__ = ["Served", "certificates", "command", "refusal"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "incumbent.server", *map(str, arguments)]


def refusal(*arguments: object, env: dict[str, str] | None = None) -> str:
    """The last line of a start, or another command, that must fail."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


class Served:
    """A server in `directory`, with more arguments and variables. A context manager.

    host, port  where it said to listen
    admin       the port of its admin endpoint, with `has_admin`
    """

    def __init__(
        self,
        directory: Path,
        *arguments: object,
        listen: str | None = "127.0.0.1:0",
        has_admin: bool = False,
        env: dict[str, str] | None = None,
    ) -> None:
        self.data = directory / "data"
        self.admin = free_port() if has_admin else 0
        self.host, self.port = "", 0
        self._log = directory / "server.log"
        self._env = {**os.environ, **(env or {})}
        self._command = command("--data", self.data, "--parent-death", os.getpid(), *arguments)
        if listen is not None:
            self._command += ["--listen", listen]
        if has_admin:
            self._command += ["--admin", f"127.0.0.1:{self.admin}"]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Served:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._env
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            self.stop()
            raise AssertionError(f"the server said {line!r}: {self.output()}")
        self.host, _, port = line.split()[-1].rpartition(":")
        self.port = int(port)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    @property
    def hosts(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, signum: int = signal.SIGTERM) -> int | None:
        """End it; its exit code."""
        if self._process is None:
            return None
        self._process.send_signal(signum)
        code = self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def word(self, word: str) -> str:
        return four_letters(self.host, self.port, word)

    def http(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def json(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.http(f"/commands/{name}"))
        return shown


def certificates(directory: Path, subject: str = "/C=DE/O=Example, Inc./OU=ops/CN=web") -> Path:
    """ca.pem, server.pem, client.pem (each of the last two with its key) in the directory."""

    def openssl(*arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60
        )

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name, shown in (("server", "/CN=localhost"), ("client", subject)):
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", shown)
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-set_serial", "7", "-days", "2", "-extfile", "names", "-out", f"{name}.crt"),
        )
        pem = (directory / f"{name}.crt").read_text() + (directory / f"{name}.key").read_text()
        (directory / f"{name}.pem").write_text(pem)
    return directory
