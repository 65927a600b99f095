"""Elections, groups and caches for blocking code; interrupted wherever it may be, nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interrupting import interrupt
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.errors import Deposed, NameTaken, SessionClosed
from incumbent.testing import EmbeddedServer


@pytest.fixture
def zk(zookeeper_hosts: str) -> Iterator[sync.Zk]:
    with incumbent.connect(zookeeper_hosts, tick=0.0) as zk:
        yield zk


def test_a_cache_in_blocking_code(zk: sync.Zk) -> None:
    zk.create("/app/x", b"1", parents=True)
    with zk.cache("/app") as cache, cache.changes() as changes:
        assert [changes.next(1).path for _ in range(2)] == ["/app", "/app/x"]
        zk.set("/app/x", b"2")
        cache.settled()
        znode = cache.get("/app/x")
        assert znode is not None
        assert znode.data == b"2"
        after = next(changes).after
        assert after is not None
        assert after.data == b"2"
        assert cache.children() == ["x"]
        assert list(cache.snapshot()) == ["/app", "/app/x"]
        assert cache.is_current
        with pytest.raises(TimeoutError):
            changes.next(0.01)
    with pytest.raises(SessionClosed):
        cache.get()


def test_a_group_in_blocking_code(zk: sync.Zk, zookeeper: EmbeddedServer) -> None:
    group = zk.group("/g")
    with group.observe() as rosters:
        assert rosters.next(1).members == {}
        with group.join("1", name="me", timeout=5) as membership:
            assert rosters.next(1).joined == ("me",)
            membership.update("2")
            membership.settled(5)
            assert membership.is_in
            assert next(rosters).updated == ("me",)
            assert group.members()["me"].data == b"2" == membership.data
            with (
                incumbent.connect(zookeeper.hosts, tick=0.0) as other,
                pytest.raises(NameTaken),
                other.group("/g").join(name="me", timeout=0.05),
            ):
                pass
        assert next(rosters).left == ("me",)
        assert rosters.members == {}


def test_terms_and_an_abdication_in_blocking_code(zk: sync.Zk) -> None:
    election, ends = zk.election("/e"), []
    for term in election.terms("me"):
        with term as leadership:
            leadership.update("ready")
            leader = election.view().leader
            assert leader is not None
            assert leader.member == b"ready"
            if len(ends) == 2:
                break
            if not ends:
                election.abdicate()
            else:
                zk.delete(f"/e/{leadership.name}")
            assert leadership.lost.wait(5)
            ends.append(type(leadership.lost.error).__name__)
            with pytest.raises(Deposed):
                leadership.ensure()

    assert ends == ["Abdicated", "Deposed"]
    with election.lead("me") as leadership:
        election.abdicate()
        assert leadership.lost.wait(5)


@pytest.mark.parametrize("what", ["group", "term", "cache", "observer"])
def test_interrupted_at_any_moment_nothing_is_left(
    what: str,
    zk: sync.Zk,
    zookeeper: EmbeddedServer,
) -> None:
    zk.ensure("/v")

    def go_through() -> None:
        match what:
            case "group":
                with zk.group("/v").join("x") as membership:
                    membership.update("y")
                    membership.settled()
            case "term":
                for term in zk.election("/v").terms("x"):
                    with term:
                        break
            case "cache":
                with zk.cache("/v") as cache:
                    cache.settled()
            case "observer":
                with zk.group("/v").observe() as rosters:
                    rosters.next()

    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        for step in range(40):
            interrupt(step * 0.0003, go_through)
        wait_until(lambda: other.children("/v") == [], 5, "nobody to stand there")
        wait_until(lambda: len(zk._zk.client._watches) == 0, 5, "no watch to be left")
