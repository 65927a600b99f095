"""Apache's Java client over a cut connection and a killed server: what it is told is the same."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from difflib import unified_diff
from pathlib import Path

import pytest
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
from tests.relay import relay_to

SOURCE = Path(__file__).parent / "clients" / "Watches.java"
_JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all")
_CLASSPATH = ":".join(f"/usr/share/java/{jar}.jar" for jar in _JARS)


async def play(classes: Path, server: ApacheServer | EmbeddedServer) -> list[str]:
    """What the program prints; what it asks for is done."""
    lines: list[str] = []
    async with relay_to(server.hosts) as relay:
        process = await asyncio.create_subprocess_exec(
            *("java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{_CLASSPATH}", "Watches"),
            *(relay.hosts, server.hosts),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            while line := (await asyncio.wait_for(process.stdout.readline(), 60)).decode().rstrip():
                lines.append(line)
                match line:
                    case "cut":
                        relay.stop()
                    case "heal":
                        await relay.start()
                    case "restart":
                        await asyncio.to_thread(server.restart)
                    case _:
                        continue
                process.stdin.write(b"done\n")
            assert await asyncio.wait_for(process.wait(), 30) == 0, "\n".join(lines)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return lines


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    if shutil.which("javac") is None:
        pytest.skip("no javac (apt-get install default-jdk-headless)")
    output = tmp_path / "classes"
    command = ["javac", "-cp", _CLASSPATH, "-d", str(output), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return output


@pytest.mark.apache
async def test_watches_outlive_connections_and_servers(tmp_path: Path, classes: Path) -> None:
    with ApacheServer(tmp_path / "apache") as apache, EmbeddedServer(tmp_path / "ours") as ours:
        expected = await play(classes, apache)
        got = await play(classes, ours)

    differences = list(unified_diff(expected, got, "Apache", "ours", lineterm="", n=3))
    assert not differences, "\n".join(differences)
    assert got[-1] == "done"
    assert "the same session true true" in got
