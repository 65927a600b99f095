"""Four-letter words and JSON look like Apache ZooKeeper's: the same fields in the same order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.apache import ApacheServer, four_letters
from tests.e2e.served import Served

from incumbent.server.words import WORDS

VALUE = re.compile(
    r"(?<![a-z_])(0x[0-9a-f]+|-?\d+(\.\d+)?)|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d [\d:]+ \w+ \d{4}"
)


SAME = ("ruok", "srvr", "stat", "cons", "conf", "isro", "wchs", "wchc", "wchp", "dirs", "hash")
SAME += ("crst", "srst")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ApacheServer, Served]]:
    directory = tmp_path_factory.mktemp("both")
    with (
        ApacheServer(directory / "apache", settings={"maxClientCnxns": 60}) as apache,
        Served(directory, "--words", "*") as ours,
    ):
        for server in (apache, ours):
            first, second = KazooClient(server.hosts), KazooClient(server.hosts)
            first.start(20)
            second.start(20)
            first.create("/a", b"x")
            first.create("/e1", ephemeral=True)
            first.create("/e2", ephemeral=True)
            second.create("/e3", ephemeral=True)
            first.get("/a", watch=print)
            second.exists("/a", watch=print)
            second.get_children("/", watch=print)
        yield apache, ours


def shape(text: str) -> list[str]:
    """The lines, with what kind their values are."""
    lines = [re.sub(r"(ersion\s*[:=\t] ?).*", r"\1#", line) for line in text.split("\n")]
    return [VALUE.sub("#", re.sub(r"/\S*/(data|version-2)\b\S*", "DIR", line)) for line in lines]


def answers(both: tuple[ApacheServer, Served], word: str) -> tuple[str, str]:
    apache, ours = (four_letters(server.host, server.port, word) for server in both)
    return apache, ours


@pytest.mark.apache
@pytest.mark.parametrize("word", SAME)
def test_the_same_lines(both: tuple[ApacheServer, Served], word: str) -> None:
    expected, got = map(shape, answers(both, word))

    if word == "cons":  # connections come in no order
        expected, got = sorted(expected), sorted(got)
    assert got == expected


@pytest.mark.apache
def test_the_dump_names_the_same_things(both: tuple[ApacheServer, Served]) -> None:
    """In which order, and into how many sets they fall, is a matter of the moment."""
    expected, got = (
        sorted(line for line in shape(text) if "expire at" not in line and "Sets" not in line)
        for text in answers(both, "dump")
    )

    assert got == expected


@pytest.mark.apache
def test_what_is_counted_is_counted_under_apaches_name(both: tuple[ApacheServer, Served]) -> None:
    expected, got = (
        dict(line.split("\t") for line in text.splitlines()) for text in answers(both, "mntr")
    )

    assert list(got) == [name for name in expected if name in got]  # and in the same order
    for name in ("znode_count", "watch_count", "ephemerals_count", "approximate_data_size"):
        assert got[f"zk_{name}"] == expected[f"zk_{name}"], name
    for name in ("global_sessions", "num_alive_connections", "connection_request_count"):
        assert got[f"zk_{name}"] == expected[f"zk_{name}"], name


@pytest.mark.apache
def test_the_environment_is_said_alike_but_for_java(both: tuple[ApacheServer, Served]) -> None:
    expected, got = (
        [line.partition("=")[0] for line in text.splitlines()] for text in answers(both, "envi")
    )

    assert [name for name in got if not name.startswith("python.")] == [
        name for name in expected if not name.startswith(("java.", "os.memory."))
    ]


def test_only_what_is_allowed_is_answered(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        for word in sorted(word.decode() for word in WORDS - {b"ruok", b"srvr"}):
            assert server.word(word) == (
                f"{word} is not executed because it is not in the whitelist.\n"
            )
        assert server.word("ruok") == "imok"
        assert server.word("srvr").startswith("Zookeeper version: 3.8.0")
