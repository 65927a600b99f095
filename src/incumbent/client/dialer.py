"""Finding a server that answers: which host next, how long to wait for it, how long between.

Rule of this file: no single host may use up the session. Each round through the hosts takes at
most `silence` in all, so that with two of three black-holed the third is reached in time;
only when hosts were too slow in a round do they get twice as long in the next.

Names are looked up at each attempt. Back-off grows to `reconnect` = min(5 s, S/10), with jitter.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from incumbent.client.connection import ConnectionFailed, words
from incumbent.client.hosts import Host
from incumbent.clock import Clock
from incumbent.errors import AuthFailed
from incumbent.lease import Numbers

__all__ = ["Attempt", "Dialer", "backoff", "patience"]

T = TypeVar("T")

Attempt = Callable[[Host], Awaitable[T]]
"""Tries one address until it is cancelled; raises `ConnectionFailed`, `AuthFailed`, OSError."""

_FIRST_PAUSE = 0.02  # seconds; doubled per round without success


def backoff(rounds: int, cap: float, draw: float) -> float:
    """Seconds to pause after so many rounds without success; `draw` is from [0, 1)."""
    return min(cap, _FIRST_PAUSE * 2.0 ** min(rounds, 30)) * (0.5 + draw / 2)


def patience(hosts: int, slow_rounds: int, silence: float, session: float) -> float:
    """Seconds that one host gets, when hosts were too slow in so many rounds before."""
    return min(max(session / 3, silence / hosts), silence / hosts * 2.0 ** min(slow_rounds, 30))


class Dialer:
    """Goes round the hosts, from where it left off, until one attempt succeeds."""

    def __init__(
        self, hosts: list[Host], clock: Clock, rng: random.Random, log: Callable[[str], None]
    ) -> None:
        self._hosts = list(hosts)
        rng.shuffle(self._hosts)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._answers: dict[str, str] = {}
        self._rounds = 0
        self._slow_rounds = 0
        self._reached_at: float | None = None

    @property
    def report(self) -> list[tuple[str, str]]:
        """Every address that did not work and what it last answered."""
        return list(self._answers.items())

    def why_not(self) -> str:
        """The report as a sentence, for whoever was not served."""
        report = [f"{address}: {answer}" for address, answer in self._answers.items()]
        return "; ".join(report) or "no answer yet"

    def noted(self, why: str) -> None:
        """The connection that was reached is lost."""
        self._answers["last connection"] = why

    async def dial(self, attempt: Attempt[T], numbers: Numbers) -> T:
        """The result of the first attempt that succeeds. Never gives up."""
        if self._reached_at is not None:
            lived = self._clock.boottime() - self._reached_at
            self._rounds = self._rounds + 1 if lived < numbers.reconnect else 0
        while True:
            if self._rounds:
                await asyncio.sleep(backoff(self._rounds, numbers.reconnect, self._rng.random()))
            was_slow = False
            limit = patience(len(self._hosts), self._slow_rounds, numbers.silence, numbers.session)
            for _ in range(len(self._hosts)):
                host = self._hosts.pop(0)
                self._hosts.append(host)
                try:
                    result = await self._host(host, attempt, limit)
                except TimeoutError:
                    was_slow = True
                except ConnectionFailed:
                    pass  # it is in the report
                else:
                    self._answers.clear()
                    self._reached_at = self._clock.boottime()
                    self._slow_rounds = 0
                    return result
            self._rounds += 1
            if was_slow:
                self._slow_rounds += 1

    async def _host(self, host: Host, attempt: Attempt[T], limit: float) -> T:
        """Try the addresses of one host. Raises TimeoutError if any was too slow."""
        addresses = await self._resolve(host, limit)
        share = limit / len(addresses)
        was_slow = False
        for address in addresses:
            self._answers.setdefault(str(address), "no answer yet")
            try:
                async with asyncio.timeout(share):
                    return await attempt(address)
            except TimeoutError:
                self._failed(address, f"no answer within {share:.3g} s")
                was_slow = True
            except (ConnectionFailed, AuthFailed, OSError) as error:
                self._failed(address, words(error))
        if was_slow:
            raise TimeoutError
        raise ConnectionFailed("none of its addresses worked")

    async def _resolve(self, host: Host, limit: float) -> list[Host]:
        if _is_literal(host.name):
            return [host]
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit):
                found = await loop.getaddrinfo(host.name, host.port, type=socket.SOCK_STREAM)
        except TimeoutError:
            self._failed(host, f"its name was not resolved within {limit:.3g} s")
            raise
        except OSError as error:
            self._failed(host, f"its name was not resolved: {words(error)}")
            raise ConnectionFailed("unknown name") from None
        return list(dict.fromkeys(Host(str(info[4][0]), host.port, host.name) for info in found))

    def _failed(self, address: Host, answer: str) -> None:
        if self._answers.get(str(address)) != answer:
            self._log(f"{address}: {answer}")
        self._answers[str(address)] = answer


def _is_literal(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
