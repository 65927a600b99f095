"""A pytest plugin for kazoo's own tests: one server of ours (or any) in place of kazoo's cluster.

kazoo's tests reach servers only through `kazoo.testing.harness.get_global_cluster()`, which
starts three JVMs. This puts a cluster of one in its place.

Rule of this file: it runs in the environment of the peers, and imports nothing of this project.
What to start comes in KAZOO_SUITE_COMMAND: a JSON list, in which {port}, {secure}, {data}
(a directory), {certificates} and {parent} (our pid) are filled in. The process must print a line when it serves.
"""

from __future__ import annotations

import atexit
import datetime
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

for _unused in ("OpenSSL", "jks"):  # kazoo's cluster makes Java key stores with them
    sys.modules.setdefault(_unused, types.ModuleType(_unused))

from kazoo.testing import harness  # noqa: E402

_CLUSTERS: list[Cluster] = []


class Node:
    """A server with kazoo's names for what one does with it."""

    def __init__(self, certificates: Path) -> None:
        self.host = "127.0.0.1"
        self.client_port = _free_port()
        self.secure_client_port = _free_port()
        self._certificates = certificates
        self._folder = Path(tempfile.mkdtemp(prefix="kazoo-suite-"))
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def secure_address(self) -> str:
        return f"{self.host}:{self.secure_client_port}"

    @property
    def running(self) -> bool:
        return self._process is not None

    def run(self) -> None:
        if self.running:
            return
        self._folder.mkdir(exist_ok=True)
        values = {
            "port": self.client_port,
            "secure": self.secure_client_port,
            "data": self._folder / "data",
            "certificates": self._certificates,
            "parent": os.getpid(),
        }
        command = [part.format(**values) for part in json.loads(os.environ["KAZOO_SUITE_COMMAND"])]
        log = (self._folder / "log").open("a")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.close()
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"{command} did not start: {self.get_logs()}"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def reset(self) -> None:
        self.stop()
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    def destroy(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def get_logs(self, lines: int = 100) -> list[str]:
        log = self._folder / "log"
        return log.read_text().splitlines()[-lines:] if log.exists() else []


class Cluster:
    """A cluster of one, with kazoo's names."""

    def __init__(self) -> None:
        self._certificates = Path(tempfile.mkdtemp(prefix="kazoo-suite-tls-"))
        _make_certificates(self._certificates)
        self._nodes = [Node(self._certificates)]

    def __getitem__(self, i: int) -> Node:
        return self._nodes[i]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def start(self) -> None:
        for node in self:
            node.run()

    def stop(self) -> None:
        for node in self:
            node.stop()

    def terminate(self) -> None:
        for node in self:
            node.destroy()

    def reset(self) -> None:
        for node in self:
            node.reset()

    def get_logs(self) -> list[str]:
        return [line for node in self for line in node.get_logs()]

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        names = {"client_key": "client.key", "client_cert": "client.pem", "ca_cert": "ca.pem"}
        return {key: (self._certificates / name).read_bytes() for key, name in names.items()}

    def end(self) -> None:
        self.terminate()
        shutil.rmtree(self._certificates, ignore_errors=True)


def get_global_cluster() -> Cluster:
    """One for each process, made when a test first asks for it."""
    if not _CLUSTERS:
        _CLUSTERS.append(Cluster())
        atexit.register(_CLUSTERS[0].end)
    return _CLUSTERS[0]


harness.get_global_cluster = get_global_cluster


def _free_port() -> int:
    """Outside the range of outgoing connections, so that a restarted server finds it free."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port in a thousand tries")


def _make_certificates(folder: Path) -> None:
    """ca.pem, and for server and client NAME.pem and NAME.key, good for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    today = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server", "client")}
    names = {
        name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        for name, common in (("ca", "a ca"), ("server", "localhost"), ("client", "client"))
    }
    for name, key in keys.items():
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=1))
            .not_valid_after(today + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        )
        certificate = builder.sign(keys["ca"], hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
