"""Four-letter words of a server at a moment made by hand. (tests/e2e compares with Apache's.)"""

from __future__ import annotations

from tests.unit.server.desk import Desk

from incumbent.server.metrics import exposition
from incumbent.server.report import About, Report
from incumbent.server.traffic import Account, Spread, Traffic
from incumbent.server.words import WORDS, answer
from incumbent.wire import Create, Exists, Ping

ALL = frozenset(word.decode() for word in WORDS)


class FakeCaller:
    """A connection as reports see it."""

    def __init__(self, session_id: int, *, is_secure: bool = False) -> None:
        self.session_id = session_id
        self.address = "10.0.0.7"
        self.port = 4711
        self.is_secure = is_secure
        self.is_leaving = False
        self.account = Account()
        self.waiting = 2


def report(desk: Desk, *callers: FakeCaller, traffic: Traffic | None = None) -> Report:
    return Report(
        about=About(
            data="/data", data_log="/log", port=2181, started_at=990.0, sizes=lambda: (3, 4)
        ),
        service=desk.service,
        traffic=traffic or Traffic(),
        callers=callers,
        now=desk.clock.now,
        wall=desk.clock.wall(),
    )


def said(word: str, shown: Report) -> str:
    return answer(word.encode(), shown, ALL).decode()


def test_every_word_has_an_answer() -> None:
    desk = Desk()
    desk.peer()

    for word in sorted(ALL):
        assert isinstance(said(word, report(desk)), str)


def test_what_is_not_allowed_is_not_executed() -> None:
    shown = report(Desk())

    assert (
        answer(b"ruok", shown, ()) == b"ruok is not executed because it is not in the whitelist.\n"
    )
    assert answer(b"ruok", shown, {"ruok"}) == b"imok"


def test_a_connection_is_shown_with_its_last_request() -> None:
    desk = Desk()
    session = desk.peer().session_id
    caller = FakeCaller(session, is_secure=True)
    caller.account.since_ms, caller.account.received, caller.account.sent = 5, 3, 2
    caller.account.last = Exists("/").encode(17)[:8]
    caller.account.took(4.0, 1, 9, 77)
    caller.account.took(1.0, 1, 9, 78)

    assert said("cons", report(desk, caller)) == (
        f" /10.0.0.7:4711[1](queued=2,recved=3,sent=2,sid={session:#x},lop=EXIS,est=5,to=10000,"
        "lcxid=0x11,lzxid=0x9,lresp=78,llat=1,minlat=1,avglat=2,maxlat=4)\n\n"
    )
    assert report(desk, caller).connections()["connections"] == []
    said("crst", report(desk, caller))
    assert (caller.account.received, caller.account.since_ms) == (0, 5)


def test_a_ping_is_shown_without_its_xid() -> None:
    desk = Desk()
    caller = FakeCaller(desk.peer().session_id)
    caller.account.last = Ping().encode(-2)[:8]

    assert "lop=PING" in said("cons", report(desk, caller))
    assert "lcxid" not in said("cons", report(desk, caller))


def test_watches_by_session_and_by_path() -> None:
    desk = Desk()
    first, second = desk.peer(), desk.peer()
    for peer in (first, second):
        desk.call(peer, Exists("/x", True))
    desk.call(first, Exists("/y", True))
    shown = report(desk)

    assert said("wchs", shown) == "2 connections watching 2 paths\nTotal watches:3\n"
    one, two = hex(first.session_id), hex(second.session_id)
    assert said("wchp", shown) == f"/x\n\t{one}\n\t{two}\n/y\n\t{one}\n\n"
    assert said("wchc", shown) == f"{one}\n\t/x\n\t/y\n{two}\n\t/x\n\n"


def test_sessions_and_their_ephemerals_are_dumped() -> None:
    desk = Desk()
    peer = desk.peer()
    desk.call(peer, Create("/e", flags=1))

    lines = said("dump", report(desk, FakeCaller(peer.session_id))).splitlines()

    assert lines[1] == "Session Sets (1)/(1):"
    assert lines[3:8] == [
        f"\t{peer.session_id:#x}",
        "ephemeral nodes dump:",
        "Sessions with Ephemerals (1):",
        f"{peer.session_id:#x}:",
        "\t/e",
    ]


def test_a_server_that_cannot_write_says_so() -> None:
    desk = Desk()
    assert said("isro", report(desk)) == "rw"

    desk.service.is_writable = False

    assert said("isro", report(desk)) == "ro"
    assert "incumbent_writable 0\n" in exposition(report(desk))


def test_counters_begin_anew() -> None:
    traffic = Traffic()
    traffic.received, traffic.sent = 5, 4
    traffic.took(0.003, 3, writes=1)
    shown = report(Desk(), traffic=traffic)
    assert "Latency min/avg/max: 3/3.0/3\nReceived: 5\nSent: 4\n" in said("srvr", shown)

    assert said("srst", shown) == "Server stats reset.\n"

    assert "Latency min/avg/max: 0/0.0/0\nReceived: 0\nSent: 0\n" in said("srvr", shown)


def test_metrics_say_each_thing_once() -> None:
    lines = exposition(report(Desk())).splitlines()

    names = [line.split()[0] for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))
    assert "updatelatency_count" in names
    assert "avg_updatelatency" not in names


def test_a_spread_of_nothing_and_of_some() -> None:
    spread = Spread()
    assert (spread.mean, spread.least, spread.most) == (0.0, 0.0, 0.0)

    spread.add(2.0)
    spread.add(5.0, 2)
    spread.add(9.0, 0)

    assert (spread.count, spread.mean, spread.least, spread.most) == (3, 4.0, 2.0, 5.0)
