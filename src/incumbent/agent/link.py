"""The agent's end of its link to the guardian.

Rule of this file: it carries messages and decides nothing. A line that is no message closes
the link, which the agent takes as the guardian's death.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from incumbent.errors import RemoteWireError
from incumbent.guardian.codec import Splitter, encode
from incumbent.guardian.messages import FromAgent, Hello, Message, Welcome

__all__ = ["GuardianLink"]


class GuardianLink(asyncio.Protocol):
    """An asyncio protocol. Messages before `listen` wait for it; `closed` ends with the link."""

    def __init__(self) -> None:
        self._on_message: Callable[[Message], None] | None = None
        self._early: list[Message] = []
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[Welcome] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    async def hello(self, pid: int) -> Welcome:
        """Say HELLO, wait for WELCOME. Raises ConnectionError if the guardian is gone."""
        self.send(Hello(pid=pid))
        either: list[asyncio.Future[Any]] = [self.welcome, self.closed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self.welcome.done():
            raise ConnectionError("the guardian closed the link before its WELCOME")
        return self.welcome.result()

    def listen(self, on_message: Callable[[Message], None]) -> None:
        """From now on `on_message` gets every message but WELCOME, in order."""
        self._on_message = on_message
        early, self._early = self._early, []
        for message in early:
            on_message(message)

    def send(self, message: FromAgent) -> None:
        """After the link is closed nobody hears it: dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._splitter.feed(data):
                self._take(message)
        except RemoteWireError:
            if self._transport is not None:
                self._transport.abort()

    def _take(self, message: Message) -> None:
        if isinstance(message, Welcome):
            if not self.welcome.done():
                self.welcome.set_result(message)
        elif self._on_message is None:
            self._early.append(message)
        else:
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
