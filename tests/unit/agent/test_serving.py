"""The log server alone, over real sockets: who may read, and that no reader holds up another."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.apache import free_port
from tests.e2e.served import certificates
from tests.waiting import eventually

from incumbent.agent import serving
from incumbent.agent.log_words import LARGEST, Ask, proof, proven
from incumbent.agent.serving import READERS, LogServer
from incumbent.agent.tree import NodeFacts
from incumbent.cli.node_logs import CannotRead, Log, read_from
from incumbent.credentials import Credentials, digest_id
from incumbent.guardian.logwriter import stamped
from incumbent.log_service import LogService

SECRET = b"operators:of-them"
OPERATOR = Credentials(auth=(("digest", SECRET),))
OPERATORS = (f"digest:{digest_id(SECRET)}",)
WEB = Ask(seat="web/0", lines=100)
FOLLOWED = Ask(seat="web/0", lines=100, follow=True)


class Home:
    """A node n1 with the logs in a folder."""

    def __init__(self, folder: Path, **service: Any) -> None:
        self.folder = folder
        self.service = LogService(listen=f"127.0.0.1:{free_port()}", **service)
        self.facts = NodeFacts(node="n1", node_id="", boot_id="", session="", logs=self.service.url)
        self.operators: tuple[str, ...] = OPERATORS
        self.said: list[str] = []
        self.begun: dict[int, float] = {}

    def find(self, seat: str) -> Path:
        component, _, number = seat.rpartition("/")
        return self.folder / f"{component}-{number}.log"

    def write(self, *lines: str) -> None:
        with self.find("web/0").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    async def read(self, ask: Ask = WEB, credentials: Credentials = OPERATOR) -> Log:
        return await read_from(self.facts, ask, credentials)

    async def all_of(self, ask: Ask = WEB, credentials: Credentials = OPERATOR) -> list[str]:
        log = await self.read(ask, credentials)
        try:
            lines: list[str] = []
            while (batch := await log.batch()) is not None:
                lines += batch
            return lines
        finally:
            log.close()


@asynccontextmanager
async def serving_of(home: Home) -> AsyncIterator[Home]:
    nonces = iter(range(10**6))
    server = LogServer(
        home.service,
        "n1",
        find=home.find,
        begun=lambda _seat, epoch: home.begun.get(epoch, 0.0),
        operators=lambda: home.operators,
        nonce=lambda: str(next(nonces)),
        say=home.said.append,
        bind_again=0.05,
    )
    running = asyncio.ensure_future(server.run())
    host, port = home.service.listen.split(":")

    def listens() -> bool:
        with socket.socket() as trying:
            return trying.connect_ex((host, int(port))) == 0

    await eventually(listens, 10.0)
    try:
        yield home
    finally:
        running.cancel()
        await asyncio.wait([running])


def run(story: Callable[[Home], Awaitable[None]], folder: Path, **service: Any) -> None:
    async def told() -> None:
        async with serving_of(Home(folder, **service)) as home:
            await story(home)

    asyncio.run(told())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def refusal(home: Home, credentials: Credentials, ask: Ask = WEB) -> str:
    with pytest.raises(CannotRead) as refused:
        await home.all_of(ask, credentials)
    return str(refused.value)


def test_operators_read_and_nobody_else(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        home.write("1", "2", "3")

        assert await home.all_of(Ask(seat="web/0", lines=2)) == ["2", "3"]
        for secret in (b"operators:guessed", b"agents:theirs"):
            why = await refusal(home, Credentials(auth=(("digest", secret),)))
            assert "may not read logs here" in why and "guessed" not in why
        assert "who shows nothing may not read" in await refusal(home, Credentials())
        home.operators = ()
        assert "`incumbent init` makes them" in await refusal(home, OPERATOR)

    run(story, tmp_path)


def test_a_proof_is_good_for_one_node_once_and_needs_the_whole_secret() -> None:
    mine = OPERATORS[0]
    url, who = "tls://n1:7281", "digest:operators"
    shown = [(who, proof(mine.removeprefix("digest:"), "nonce", "n1", url))]

    assert proven(OPERATORS, shown, "nonce", "n1", url) == [mine]
    assert proven(OPERATORS, [(who, "an older password's"), *shown], "nonce", "n1", url) == [mine]
    assert proven(OPERATORS, shown, "another", "n1", url) == []
    assert proven(OPERATORS, shown, "nonce", "n2", url) == []
    assert proven(OPERATORS, shown, "nonce", "n1", "tls://n3:7281") == []  # passed on from there
    assert proven(("digest:agents:x",), shown, "nonce", "n1", url) == []
    assert proven(OPERATORS, [(who, "")], "nonce", "n1", url) == []


def test_who_is_asked_learns_nothing_that_another_would_take(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[bytes] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'{"v": 1, "node": "n1", "nonce": "n"}\n')
            heard.append(await reader.readline())
            writer.close()

        home = Home(tmp_path)
        async with await asyncio.start_server(listen, *home.service.listen.split(":")):
            await refusal(home, OPERATOR)

        secret_hash = digest_id(SECRET).rpartition(":")[2]
        assert b"digest:operators" in heard[0]
        assert secret_hash.encode() not in heard[0] and b"of-them" not in heard[0]

    asyncio.run(story())


def test_a_certificate_is_enough_where_it_is_named(tmp_path: Path) -> None:
    pems = certificates(tmp_path, "/CN=reader")
    ours = {"tls_ca": str(pems / "ca.pem")}

    async def story(home: Home) -> None:
        home.write("1")

        shown = Credentials(**ours, tls_cert=str(pems / "client.pem"))
        assert await home.all_of(WEB, shown) == ["1"]
        assert "may not read" in await refusal(home, Credentials(**ours))
        assert "is not known to be itself" in await refusal(home, OPERATOR)
        plain = Home(tmp_path)
        plain.facts = NodeFacts(
            node="n1", node_id="", boot_id="", session="", logs=f"tcp://{home.service.listen}"
        )
        assert "n1 " in await refusal(plain, OPERATOR)  # clear text to an encrypted port

    run(
        story,
        tmp_path,
        tls_cert=str(pems / "server.pem"),
        **ours,
        readers=("x509:CN=reader",),
    )


def test_nothing_is_read_in_clear_text_from_elsewhere(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.facts = NodeFacts(
        node="n1", node_id="", boot_id="", session="", logs="tcp://10.255.255.1:7281"
    )

    assert "in clear text" in asyncio.run(refusal(home, OPERATOR))


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n",
        b'{"seat": "../../etc/passwd"}\n',
        b'{"seat": "../x/0"}\n',
        b'{"seat": "web/0", "hook": "../../x"}\n',
        b'{"seat": "web/00x"}\n',
        b'{"seat": "/0"}\n',
        b'{"seat": "web/0", "after": 7}\n',
        b'{"seat": "web/0", "lines": "many"}\n',
        b'{"seat": "web/0", "proofs": [7]}\n',
        b'{"seat": "web/0", "proofs": {"digest:operators:x": "y"}}\n',
        b'{"seat": "web/0", "lines": Infinity}\n',
        b'{"seat": "web/0", "after": [1, Infinity]}\n',
        b"[" * 60_000 + b"\n",
        b"[]\n",
        b"\x00\xff\n",
    ],
)
def test_what_is_no_question_is_answered_with_an_error(tmp_path: Path, said: bytes) -> None:
    async def story(home: Home) -> None:
        host, port = home.service.listen.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(said)

        answer = json.loads(await reader.readline())
        assert answer["error"]
        assert await reader.read() == b""
        writer.close()

    run(story, tmp_path)


def test_a_line_without_an_end_ends_the_connection(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        host, port = home.service.listen.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(b"x" * (3 * LARGEST))

        with pytest.raises((EOFError, ConnectionError)):
            while True:
                await reader.readexactly(1)
        writer.close()

    run(story, tmp_path)


def test_a_reader_that_takes_nothing_holds_up_nobody(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        home.write(*("x" * 1000 for _ in range(20_000)))
        slow = [await home.read(Ask(seat="web/0", lines=20_000)) for _ in range(3)]

        assert len(await home.all_of(Ask(seat="web/0", lines=20_000))) == 20_000
        for log in slow:
            log.close()

    run(story, tmp_path)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_reader_that_takes_nothing_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_encrypted: bool
) -> None:
    monkeypatch.setattr(serving, "_STALLED", 0.3)
    pems = certificates(tmp_path)
    service = {"tls_cert": str(pems / "server.pem")} if is_encrypted else {}
    ours = {"tls_ca": str(pems / "ca.pem")} if is_encrypted else {}
    reader = Credentials(auth=OPERATOR.auth, **ours)

    async def story(home: Home) -> None:
        home.write(*("x" * 1000 for _ in range(20_000)))
        before = open_files()
        stuck = await home.read(Ask(seat="web/0", lines=20_000), reader)
        stuck._writer.transport.pause_reading()  # type: ignore[attr-defined]
        with_one = open_files()
        assert with_one >= before + 2  # its end of the connection, and ours

        await eventually(lambda: open_files() <= before + 1, 10.0)
        stuck.close()

    run(story, tmp_path, **service)


def test_who_says_nothing_is_counted_before_a_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_CONNECTIONS", 3)
    pems = certificates(tmp_path)

    async def story(home: Home) -> None:
        host, port = home.service.listen.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(4)]

        ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        done, _ = await asyncio.wait(ends, timeout=3.0, return_when=asyncio.FIRST_COMPLETED)
        assert done == {ends[3]}  # the others are waited for, for longer
        for each, (_, writer) in zip(ends, silent, strict=True):
            each.cancel()
            writer.close()

    run(story, tmp_path, tls_cert=str(pems / "server.pem"))


def test_more_readers_than_there_may_be_are_told_so(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        home.write("1")
        readers = [await home.read(FOLLOWED) for _ in range(READERS)]
        for each in readers:
            assert await each.batch() == ["1"]

        assert f"{READERS} logs are read here already" in await refusal(home, OPERATOR)
        readers.pop().close()

        async def is_free() -> bool:
            try:
                return await home.all_of() == ["1"]
            except CannotRead:
                return False

        await eventually(is_free, 10.0)
        for each in readers:
            each.close()

    run(story, tmp_path)


def test_it_is_followed_and_ends_when_there_is_no_more_to_come(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        log = await home.read(FOLLOWED)
        home.write("1")
        assert await log.batch() == ["1"]
        assert log.place[1] == 2

        home.write("2")
        await log.finish()
        rest: list[str] = []
        while (batch := await log.batch()) is not None:
            rest += batch

        assert rest == ["2"]
        log.close()

    run(story, tmp_path)


def test_who_is_no_operator_any_more_reads_no_further(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        log = await home.read(FOLLOWED)
        home.write("1")
        assert await log.batch() == ["1"]

        home.operators = ("digest:others:hash",)
        home.write("2")

        with pytest.raises(CannotRead, match="may not read logs here"):
            while True:
                assert await log.batch() == []
        log.close()

    run(story, tmp_path)


HELLO = b'{"v": 1, "node": "n1", "nonce": "1"}\n'


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"[]\n",
        b"{}\n",
        HELLO + b"\x00\xff\n",
        HELLO + b'{"place": 7}\n',
        HELLO + b'{"place": ["a", 1]}\n',
        HELLO + b'{"place": [1, Infinity]}\n',
        HELLO + b'{"lines": "text"}\n',
        HELLO + b'{"lines": 7}\n',
        HELLO + b'{"lines": ["cut',
        HELLO + b"[" * 60_000 + b"\n",
    ],
)
def test_what_is_no_node_s_answer_is_an_error_that_names_the_node(
    tmp_path: Path, said: bytes
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()

    async def story() -> None:
        home = Home(tmp_path)
        host, port = home.service.listen.split(":")
        async with await asyncio.start_server(answer, host, int(port)):
            assert "n1" in await refusal(home, OPERATOR)

    asyncio.run(story())


def test_it_begins_with_an_epoch_or_behind_a_place(tmp_path: Path) -> None:
    async def story(home: Home) -> None:
        home.write(*(f"{stamped(at)} {at}" for at in range(1000, 1010)))
        home.begun = {7: 1005.0}

        lines = await home.all_of(Ask(seat="web/0", epoch=7, lines=1))
        assert [line.split()[1] for line in lines] == ["1005", "1006", "1007", "1008", "1009"]
        assert len(await home.all_of(Ask(seat="web/0", epoch=8, lines=2))) == 2  # not known here

        log = await home.read(Ask(seat="web/0", lines=1))
        await log.batch()
        log.close()
        home.write("next")
        assert await home.all_of(Ask(seat="web/0", after=log.place)) == ["next"]

    run(story, tmp_path)


def test_a_port_that_is_taken_is_said_and_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path)
        host, port = home.service.listen.split(":")
        with socket.socket() as taken:
            taken.bind((host, int(port)))
            taken.listen()
            async with serving_of(home):
                await eventually(lambda: home.said, 10.0)
                assert home.said == [
                    f"logs are not served at {home.service.listen}: address already in use"
                ]
                taken.close()

                async def is_served() -> bool:
                    try:
                        return await home.all_of() == []
                    except CannotRead:
                        return False

                await eventually(is_served, 10.0)

    asyncio.run(story())
