"""The log pipes of all trees that live, and the children that write them out.

A writer that dies is followed by the next one; one that leaves its pipe full is frozen, and is
killed for it. Each second the pipes are asked, all in one call, which of them have something to
read: those that have none cost nothing.

Rule of this file: no log is ever a reason not to start a program, to wait for one, or to end it.
"""

from __future__ import annotations

import math
import select
import selectors
from collections.abc import Callable, Iterator

from incumbent.guardian import kernel
from incumbent.guardian.logwriter import LogPipe

__all__ = ["Key", "Logs"]

Key = tuple[str, int]
"""A seat and its epoch."""

_LOOK_EVERY = 1.0  # seconds between two looks at the pipes
_REPLACED = "the log writer was replaced, lines may be missing here"


class Logs:
    """`look_at`: when `look` is due, boottime. `helpers`: pids of writers that end by themselves,
    once they have written the rest."""

    def __init__(
        self, selector: selectors.BaseSelector, helpers: set[int], say: Callable[[str], None]
    ) -> None:
        self.look_at = math.inf
        self._selector = selector
        self._helpers = helpers
        self._say = say
        self._pipes: dict[Key, LogPipe] = {}
        self._filled = select.epoll()
        self._doubtful: dict[Key, LogPipe] = {}  # young, or full at the last look

    def pids(self) -> Iterator[int]:
        return (pipe.pid for pipe in self._pipes.values())

    def keep(self, key: Key, pipe: LogPipe) -> None:
        """Its program is forked: what it writes until there is a writer waits in the pipe."""
        pipe.close_write_end()
        self._pipes[key] = pipe
        self._filled.register(pipe.read_end, select.EPOLLIN)
        self._replace(key, pipe, "")
        self.look_at = min(self.look_at, kernel.boottime() + _LOOK_EVERY)

    def forget(self, key: Key) -> None:
        """Its tree is empty: the writer ends by itself."""
        pipe = self._pipes.get(key)
        if pipe is not None:
            if pipe.pid > 0:
                self._selector.unregister(pipe.pidfd)
                self._helpers.add(pipe.pid)
            self._drop(key, pipe)

    def look(self, now: float) -> None:
        """Replace the writers that are missing, kill those that are frozen."""
        self.look_at = now + _LOOK_EVERY if self._pipes else math.inf
        filled = {fd for fd, _ in self._filled.poll(0, max(len(self._pipes), 1))}
        looked_at = dict(self._doubtful)
        if filled:
            looked_at |= {k: pipe for k, pipe in self._pipes.items() if pipe.read_end in filled}
        self._doubtful = {k: pipe for k, pipe in looked_at.items() if pipe.read_end in filled}
        for key, pipe in looked_at.items():
            if self._pipes.get(key) is pipe and pipe.look():
                self._replace(key, pipe)

    def _replace(self, key: Key, pipe: LogPipe, note: str = _REPLACED) -> None:
        self._doubtful[key] = pipe
        try:
            pipe.replace(note)
        except OSError as error:
            self._say(f"{key[0]} epoch {key[1]}: no log writer: {error.strerror}")
            return
        pidfd = pipe.pidfd
        self._selector.register(
            pidfd, selectors.EVENT_READ, lambda: self._on_death(key, pipe, pidfd)
        )

    def _on_death(self, key: Key, pipe: LogPipe, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        if pipe.bury():
            self._drop(key, pipe)
        elif pipe.is_young:
            self._doubtful[key] = pipe  # at the next look
        else:
            self._replace(key, pipe)

    def _drop(self, key: Key, pipe: LogPipe) -> None:
        del self._pipes[key]
        self._doubtful.pop(key, None)
        self._filled.unregister(pipe.read_end)
        pipe.close()
