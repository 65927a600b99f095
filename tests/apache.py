"""Debian's Apache ZooKeeper under test: one server, or an ensemble of three on loopback.

Rule of this file: every server started here is ended by its pid, whatever the test did; the
kernel ends it when the test program itself is killed.

Needs the package `zookeeper` (`apt-get install zookeeper`). Java is run directly: no zkServer.sh,
no admin server, no JMX, all four-letter words allowed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.children import ends_with_us
from tests.waiting import wait_until

__all__ = ["ApacheEnsemble", "ApacheServer", "apache_missing", "four_letters", "free_port"]

_JARS = Path("/usr/share/java")
_NEEDED = tuple(_JARS / name for name in ("zookeeper.jar", "slf4j-log4j12.jar", "log4j-1.2.jar"))
_FOR_TLS = tuple(_JARS / f"netty-{name}.jar" for name in ("codec", "resolver"))
"""Debian's package lacks them in its own class path."""
_JVM = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
)
_LOG4J = """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d{ISO8601} %-5p %c{1} %m%n
"""
_START_TIMEOUT = 60.0  # seconds; a JVM needs half a second, several on a busy machine more


def apache_missing() -> str | None:
    """Why Apache ZooKeeper cannot be started here, or None if it can."""
    if shutil.which("java") is None:
        return "no `java` in PATH (apt-get install default-jre-headless)"
    absent = [str(jar) for jar in _NEEDED if not jar.exists()]
    return f"no {absent[0]} (apt-get install zookeeper)" if absent else None


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nothing listens, this process's own among all tests as long as it lives.

    Outside the range of outgoing connections. So a server that is killed and started again finds
    it free: neither somebody's connection nor another test's server can have it meanwhile.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                s.bind((host, port))
                if _reserve(port):
                    return port
    raise AssertionError(f"no free port on {host} in a thousand tries")


def _reserve(port: int) -> bool:
    """Lock the port's byte in a file that all tests of this user share; False if it is taken."""
    global _ports_fd
    if _ports_fd is None:  # open as long as we live: closing it would give up all locks
        file = Path(tempfile.gettempdir()) / f"incumbent-test-ports-{os.getuid()}"
        _ports_fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if port in _ports:
        return False
    try:
        fcntl.lockf(_ports_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _ports.add(port)
    return True


_ports_fd: int | None = None
_ports: set[int] = set()


def four_letters(host: str, port: int, word: str, timeout: float = 2.0) -> str:
    """The answer to a four-letter word; "" when nothing answers in time (seconds)."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout) as s:
        s.settimeout(timeout)
        s.sendall(word.encode())
        chunks = []
        while chunk := s.recv(65536):
            chunks.append(chunk)
        return b"".join(chunks).decode(errors="replace")
    return ""


class ApacheServer:
    """One Apache ZooKeeper server in a directory of its own. A context manager: `with` starts it.

    directory   its data, configuration and output (`out.log`); survives stop and restart
    tick_time   milliseconds; sessions are granted 2 to 20 ticks
    port        client port; None takes a free one
    settings    more lines for its configuration file
    properties  more Java system properties, e.g. {"zookeeper.forceSync": "yes"}; fsync is off by
                default, since SIGKILL of a process loses nothing that was written
    """

    host = "127.0.0.1"

    def __init__(
        self,
        directory: Path,
        *,
        tick_time: int = 2000,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, str] | None = None,
        server_id: int | None = None,
    ) -> None:
        self.directory = directory
        self.tick_time = tick_time
        self.port = port or free_port(self.host)
        self._settings = dict(settings or {})
        self._properties = {"zookeeper.forceSync": "no", **(properties or {})}
        self._server_id = server_id
        self._process: subprocess.Popen[bytes] | None = None
        self._is_frozen = False

    @property
    def hosts(self) -> str:
        """`127.0.0.1:PORT`, what a client takes as its hosts."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> ApacheServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait`, return when it serves requests."""
        assert not self.is_running, "the server is running already"
        config = self._write_files()
        command = ["java", *_JVM, *self._java_properties()]
        command += ["-cp", ":".join(map(str, (*_NEEDED, *_FOR_TLS)))]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with (self.directory / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=ends_with_us(),
            )
        self._is_frozen = False
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self, timeout: float = _START_TIMEOUT) -> None:
        """Return when it answers `srvr` with its mode; a server that died shows its output."""

        def serving() -> bool:
            assert self.is_running, f"Apache ZooKeeper ended at start:\n{self.output()}"
            return self.mode() is not None

        wait_until(serving, timeout, f"Apache ZooKeeper on {self.hosts} to serve")

    def mode(self) -> str | None:
        """`standalone`, `leader`, `follower`, or None while it does not serve."""
        for line in four_letters(self.host, self.port, "srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return None

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """End it by a signal and wait until it is gone. Nothing happens if it is not running."""
        if self._process is None:
            return
        if self.is_running:
            self._process.send_signal(signum)
            if self._is_frozen and signum != signal.SIGKILL:
                self.thaw()
        self._process.wait(30)
        self._process = None

    def stop(self) -> None:
        """End it for good, frozen or not."""
        self.kill(signal.SIGKILL)

    def restart(self, *, wait: bool = True) -> None:
        """Kill it if it runs, start it on the same port and data."""
        self.kill()
        self.start(wait=wait)

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        self._is_frozen = True

    def thaw(self) -> None:
        """SIGCONT; harmless if it is not frozen."""
        os.kill(self.pid, signal.SIGCONT)
        self._is_frozen = False

    def heal(self) -> None:
        """Running and not frozen, whatever a test did to it; does not wait until it serves."""
        if not self.is_running:
            self.kill()
            self.start(wait=False)
        elif self._is_frozen:
            self.thaw()

    def output(self) -> str:
        """The end of what it printed, for a test's message."""
        log = self.directory / "out.log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else ""

    def _java_properties(self) -> list[str]:
        fixed = {
            "log4j.configuration": f"file:{self.directory / 'log4j.properties'}",
            "zookeeper.admin.enableServer": "false",
            "zookeeper.4lw.commands.whitelist": "*",
            "zookeeper.jmx.log4j.disable": "true",
        }
        return [f"-D{key}={value}" for key, value in (fixed | self._properties).items()]

    def _write_files(self) -> Path:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j.properties").write_text(_LOG4J)
        if self._server_id is not None:
            (data / "myid").write_text(f"{self._server_id}\n")
        lines: dict[str, object] = {
            "tickTime": self.tick_time,
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "maxClientCnxns": 0,
            "initLimit": 20,
            "syncLimit": 5,
            **self._settings,
        }
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return config


class ApacheEnsemble:
    """Three (or `size`) Apache ZooKeeper servers on loopback. Servers are numbered from 0."""

    def __init__(
        self,
        directory: Path,
        *,
        size: int = 3,
        tick_time: int = 2000,
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        ports = [free_port() for _ in range(3 * size)]
        clients, members = ports[:size], ports[size:]
        roll = {
            f"server.{i + 1}": f"127.0.0.1:{members[2 * i]}:{members[2 * i + 1]}"
            for i in range(size)
        }
        self.servers = [
            ApacheServer(
                directory / f"server{i}",
                tick_time=tick_time,
                port=clients[i],
                settings={**roll, **(settings or {})},
                properties=properties,
                server_id=i + 1,
            )
            for i in range(size)
        ]

    @property
    def hosts(self) -> str:
        """All servers, comma-separated."""
        return ",".join(server.hosts for server in self.servers)

    def __enter__(self) -> ApacheEnsemble:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all; return when each serves."""
        try:
            for server in self.servers:
                server.start(wait=False)
            self.wait_until_serving()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def wait_until_serving(self, timeout: float = _START_TIMEOUT) -> None:
        """Return when every running, unfrozen server is a leader or a follower of one."""
        for server in self.servers:
            if server.is_running and not server._is_frozen:
                server.wait_until_serving(timeout)

    def kill(self, i: int) -> None:
        """SIGKILL server `i`; return when it is gone."""
        self.servers[i].kill()

    def restart(self, i: int, *, wait: bool = True) -> None:
        """Kill server `i` if it runs and start it again."""
        self.servers[i].restart(wait=wait)

    def freeze(self, i: int) -> None:
        self.servers[i].freeze()

    def thaw(self, i: int) -> None:
        self.servers[i].thaw()

    def leader(self, timeout: float = _START_TIMEOUT) -> int:
        """The number of the server that leads; waits until one does."""
        return wait_until(self._leaders, timeout, "the ensemble to have a leader")[0]

    def followers(self, timeout: float = _START_TIMEOUT) -> list[int]:
        """The numbers of those that follow, at least one."""
        self.leader(timeout)
        return wait_until(lambda: self._in_mode("follower"), timeout, "a follower")

    def heal(self) -> None:
        """All running, thawed and serving."""
        for server in self.servers:
            server.heal()
        self.wait_until_serving()

    def _leaders(self) -> list[int]:
        return self._in_mode("leader")

    def _in_mode(self, mode: str) -> list[int]:
        return [
            i
            for i, server in enumerate(self.servers)
            if server.is_running and not server._is_frozen and server.mode() == mode
        ]
