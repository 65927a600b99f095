"""Shows this node's logs to readers on other machines, where `[logs]` of its own file says so.

Each reader has a connection, a file and no more than a chunk in memory. Files are read in
threads that nobody waits for at the end: a disk that hangs holds up its reader alone.

Rule of this file: a reader is nobody before it is proven to be one of those who may read; and
none, slow, stuck or gone, is ever waited for by anything but its own connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from incumbent.agent.log_words import LARGEST, Ask, line, proven
from incumbent.agent.tail import Tail
from incumbent.agent.view import take_outcome
from incumbent.guardian.logwriter import stamped
from incumbent.log_service import ANYBODY, OPERATORS, LogService, split_address

if TYPE_CHECKING:
    import ssl

__all__ = ["READERS", "LogServer"]

T = TypeVar("T")

READERS = 16
"""Logs that are shown at a time."""
_CONNECTIONS = 3 * READERS
_PATIENCE = 10.0
"""Seconds for saying who one is and what is wanted."""
_STALLED = 30.0
"""Seconds in which a reader has to take what was sent."""
_LOOK_EVERY = 0.2
_SAY_ALIVE = 15
"""Looks without a new line, after which a reader hears that we live."""
_LAST_LOOKS = 3
"""Looks without a new line, after the end of a program: its log-writer may be behind."""


class LogServer:
    """Serves until cancelled.

    find        the log of a seat, or of SEAT!HOOK
    begun       when an epoch of a seat, or the next one known, began here: wall time, or 0
    operators   the tree's, as ACLs name them
    nonce       a new one at each call
    bind_again  seconds until a port that is taken is tried again
    """

    def __init__(
        self,
        service: LogService,
        node: str,
        *,
        find: Callable[[str], Path],
        begun: Callable[[str, int], float],
        operators: Callable[[], Sequence[str]],
        nonce: Callable[[], str],
        say: Callable[[str], None],
        bind_again: float = 5.0,
    ) -> None:
        self._bind_again = bind_again
        self._service = service
        self._node = node
        self._find = find
        self._begun = begun
        self._operators = operators
        self._nonce = nonce
        self._say = say
        self._connections = 0
        self._readers = 0

    async def run(self) -> None:
        told = ""
        host, port = split_address(self._service.listen) or ("", 0)
        while True:
            try:
                tls = self._service.tls()
                meet = partial(self._serve, tls)  # before a handshake, which is counted too
                server = await asyncio.start_server(meet, host, port, limit=LARGEST)
            except OSError as error:
                why = (os.strerror(error.errno) if error.errno else str(error)).lower()
                if why != told:
                    told = why
                    self._say(f"logs are not served at {self._service.listen}: {why}")
                await asyncio.sleep(self._bind_again)
            else:
                async with server:
                    await server.serve_forever()

    async def _serve(
        self,
        tls: ssl.SSLContext | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One connection, to its end. Whatever a stranger does ends that, and nothing else."""
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS:
                if tls is not None:
                    await writer.start_tls(tls, ssl_handshake_timeout=_PATIENCE)
                await self._answer(reader, writer)
                writer.close()
                async with asyncio.timeout(_STALLED):
                    await writer.wait_closed()
        except (OSError, ValueError, EOFError):  # gone, silent, or no reader of logs
            pass
        except asyncio.CancelledError:  # the agent ends; asyncio's streams would complain of it
            pass
        finally:
            self._connections -= 1
            writer.transport.abort()  # who takes nothing is not waited for to take the rest

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = self._nonce()
        await _send(writer, {"v": 1, "node": self._node, "nonce": nonce})
        async with asyncio.timeout(_PATIENCE):
            raw = await reader.readline()
        try:
            ask = Ask.of(raw)
        except ValueError as error:
            await _send(writer, {"error": str(error)})
            return
        why_not = partial(self._why_not, ask, _certified(writer), nonce)
        why = why_not()
        if not why and self._readers >= READERS:
            why = f"{READERS} logs are read here already, and more are not shown at a time"
        if why:
            await _send(writer, {"error": why})
            return
        self._readers += 1
        try:
            await self._show(ask, why_not, reader, writer)
        finally:
            self._readers -= 1

    def _why_not(self, ask: Ask, shown: list[str], nonce: str) -> str:
        """Why this reader may not read, "" if it may. `shown`: by its certificate."""
        readers = list(self._service.readers)
        if ANYBODY in readers:
            return ""
        if OPERATORS in readers:
            readers += self._operators()
        proved = proven(readers, ask.proofs, nonce, self._node, self._service.url)
        if {*shown, *proved} & set(readers):
            return ""
        if readers == [OPERATORS]:
            return (
                "those who may read logs here are the tree's operators, and it has none: "
                "`incumbent init` makes them, or `readers` in [logs] of this node names others"
            )
        them = ", ".join([*shown, *(who for who, _ in ask.proofs)])
        return (
            f"{them or 'who shows nothing'} may not read logs here: show an operator's credential "
            "(the setting `auth`, or `tls_cert`); `readers` in [logs] of this node says who may"
        )

    async def _show(
        self,
        ask: Ask,
        why_not: Callable[[], str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        tail = Tail(self._find(ask.log))
        word = asyncio.ensure_future(reader.readline())  # that it is to end; nothing: gone
        word.add_done_callback(take_outcome)
        is_ending, quiet = False, 0
        try:
            await _in_thread(lambda: self._begin(tail, ask))
            while True:
                lines, place = await _in_thread(lambda: (tail.batch(), tail.place))
                if why := why_not():  # operators may be others by now
                    await _send(writer, {"error": why})
                    return
                if lines:
                    quiet = 0
                    await _send(writer, {"lines": lines, "place": place})
                    continue
                quiet += 1
                if not ask.follow or (is_ending and quiet >= _LAST_LOOKS):
                    await _send(writer, {"end": True})
                    return
                if quiet % _SAY_ALIVE == 0:
                    await _send(writer, {})
                if is_ending:
                    await asyncio.sleep(_LOOK_EVERY)
                    continue
                await asyncio.wait([word], timeout=_LOOK_EVERY)
                if word.done():
                    if not word.result():
                        return
                    is_ending, quiet = True, 0
        except OSError as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise
            await _send(writer, {"error": f"its log cannot be read: {error.strerror}"})
        finally:
            word.cancel()
            tail.close()

    def _begin(self, tail: Tail, ask: Ask) -> None:
        if not ask.follow:
            tail.end_here()
        if ask.after != (0, 0):
            tail.begin_after(ask.after)
        elif ask.epoch and (at := self._begun(ask.seat, ask.epoch)):
            tail.begin_at_time(stamped(at))
        else:
            tail.begin_at_last(ask.lines)


def _certified(writer: asyncio.StreamWriter) -> list[str]:
    encryption = writer.get_extra_info("ssl_object")
    if encryption is None:
        return []
    from incumbent.certificates import certified_ids

    return [f"{each.scheme}:{each.id}" for each in certified_ids(encryption)]


async def _send(writer: asyncio.StreamWriter, said: dict[str, Any]) -> None:
    """Raises TimeoutError for a reader that takes nothing."""
    writer.write(line(said))
    async with asyncio.timeout(_STALLED):
        await writer.drain()


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Its result, from a thread that ends with it, or with the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, daemon=True).start()
    return future
