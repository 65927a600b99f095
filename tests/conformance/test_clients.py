"""Other people's clients do and print the same on both servers, line by line.

C (`cli_mt`, and a program on libzookeeper_mt), Go, Node.js, Python (aiozk, zk-shell) and Java
(Apache Curator's recipes). Each program in `clients` prints a line for whatever it sees and names
what may differ by its role.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import Path

import pytest
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
from tests.peers import NODE_CLIENT, PEERS, PEERS_PYTHON, peers_missing

CLIENTS = Path(__file__).parent / "clients"
_JARS = ("curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute")
_JARS += ("guava", "slf4j-api", "slf4j-nop", "netty-all")
_CLASSPATH = ":".join(f"/usr/share/java/{jar}.jar" for jar in _JARS)
_GO = "/usr/share/gocode"


def needs(*paths: str, peers: bool = False) -> pytest.MarkDecorator:
    """Skip where a path or a command is absent, and say which package has it."""
    absent = [p for p in paths if not (Path(p).exists() if p[0] == "/" else shutil.which(p))]
    reason = f"no {absent[0]} (see tests/run_parts.py)" if absent else ""
    if peers and not reason:
        reason = peers_missing() or ""
    return pytest.mark.skipif(bool(reason), reason=reason)


def run(command: list[str], **environ: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


class Comparison:
    """Both servers, and a program run on each."""

    def __init__(self, apache: ApacheServer, ours: EmbeddedServer) -> None:
        self._servers = (apache, ours)

    def __call__(self, *command: str, environ: Mapping[str, str] | None = None) -> list[str]:
        """What it prints, the same on both; HOSTS in the command is where the server listens."""
        expected, got = (
            run([word.replace("HOSTS", server.hosts) for word in command], **(environ or {}))
            for server in self._servers
        )
        lines = got.splitlines()
        differences = list(
            unified_diff(expected.splitlines(), lines, "Apache", "ours", n=2, lineterm="")
        )
        assert not differences, "\n".join(differences)
        return lines


@pytest.fixture
def same(apache: ApacheServer, ours: EmbeddedServer) -> Comparison:
    return Comparison(apache, ours)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Compile into a directory of the test; the command's OUTPUT is the file that it returns."""

    def compiled(*command: str, **environ: str) -> Path:
        output = tmp_path / "built"
        run([word.replace("OUTPUT", str(output)) for word in command], **environ)
        return output

    return compiled


@needs("gcc", "/usr/include/zookeeper/zookeeper.h")
def test_the_c_library(same: Comparison, build: Callable[..., Path]) -> None:
    source = str(CLIENTS / "session.c")
    program = build(
        *("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-DTHREADED", "-o", "OUTPUT"),
        *(source, "-lzookeeper_mt", "-lpthread"),
    )

    lines = same(str(program), "HOSTS")

    assert lines[-1] == "done"
    assert len(lines) > 100


@needs("/usr/lib/zookeeper/bin/cli_mt")
def test_the_c_command_line(same: Comparison) -> None:
    lines = same(sys.executable, str(CLIENTS / "cli_mt.py"), "HOSTS")

    assert lines.count("/k: rc = 0") >= 4


@needs("go", f"{_GO}/src/github.com/samuel/go-zookeeper")
def test_the_go_client(same: Comparison, build: Callable[..., Path], tmp_path: Path) -> None:
    program = build(
        *("go", "build", "-o", "OUTPUT", str(CLIENTS / "session.go")),
        GO111MODULE="off",
        GOPATH=_GO,
        GOCACHE=str(tmp_path / "cache"),
        GOFLAGS="",
    )

    assert same(str(program), "HOSTS")[-1] == "done"


@needs("node", str(NODE_CLIENT))
def test_the_node_client(same: Comparison) -> None:
    lines = same(
        *("node", str(CLIENTS / "session.js"), "HOSTS"),
        environ={"NODE_PATH": str(NODE_CLIENT.parent)},
    )

    assert lines[-1] == "done"


@needs(peers=True)
def test_aiozk(same: Comparison) -> None:
    assert same(str(PEERS_PYTHON), str(CLIENTS / "aiozk_session.py"), "HOSTS")[-1] == "done"


@needs(peers=True)
def test_zk_shell(same: Comparison) -> None:
    shell = str(PEERS / "bin" / "zk-shell")

    lines = same(sys.executable, str(CLIENTS / "zk_shell_session.py"), shell, "HOSTS")

    assert lines[-2:] == ["> exists /z", "  Path /z doesn't exist"]


@needs("javac", "/usr/share/java/curator-recipes.jar")
def test_curators_recipes(same: Comparison, build: Callable[..., Path]) -> None:
    source = str(CLIENTS / "Recipes.java")
    classes = build("javac", "-cp", _CLASSPATH, "-d", "OUTPUT", source)

    lines = same(
        "java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{_CLASSPATH}", "Recipes", "HOSTS"
    )

    assert lines[-2:] == ["left []", "done"]
