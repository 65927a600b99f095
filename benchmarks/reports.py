"""What measured programs say, each line stamped at its arrival.

    with Reports(folder) as reports:
        since = now()
        first = reports.wait(lambda report: report.text == "leader", since=since)
        first.at - since                      # seconds

Every process under measurement writes its lines to a pipe that is read here, by one thread that
does nothing else. So all are timed alike, by one clock, without their help.

Rule of this file: the stamp is taken before anything is done with the bytes.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Report", "Reports", "now"]


def now() -> float:
    """Seconds, of the clock that all stamps are of."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Report:
    """One line. `source`: the name of the pipe it came through."""

    at: float
    source: str
    text: str


class Reports:
    """A context manager. `fifo` is a path that any program may write whole lines to."""

    def __init__(self, folder: Path) -> None:
        self.fifo = folder / "reports"
        os.mkfifo(self.fifo)
        self._selector = selectors.DefaultSelector()
        self._partial: dict[int, bytes] = {}
        self._all: list[Report] = []
        self._news = threading.Condition()
        self._stop, self._stopping = os.pipe()
        self._selector.register(self._stop, selectors.EVENT_READ, "")
        self._add(os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK), "fifo")
        self._thread = threading.Thread(target=self._read, name="reports", daemon=True)

    def __enter__(self) -> Reports:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._stopping, b".")
        self._thread.join()
        for fd in (*self._partial, self._stop, self._stopping):
            os.close(fd)
        self._selector.close()

    def pipe(self, source: str) -> int:
        """The writing end of a new pipe, to be handed to a process and closed here."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._add(ours, source)
        return theirs

    def find(self, is_it: Callable[[Report], bool], *, since: float) -> Report | None:
        """The first such report that came at `since` or later."""
        with self._news:
            return next((each for each in self._all if each.at >= since and is_it(each)), None)

    def wait(
        self,
        is_it: Callable[[Report], bool],
        *,
        since: float,
        timeout: float = 20.0,
        what: str = "a report",
    ) -> Report:
        """The same, waiting up to `timeout` seconds. Raises TimeoutError with the last lines."""
        deadline = now() + timeout
        with self._news:
            while True:
                for each in self._all:
                    if each.at >= since and is_it(each):
                        return each
                left = deadline - now()
                if left <= 0:
                    last = [f"{each.source}: {each.text}" for each in self._all[-8:]]
                    raise TimeoutError(f"{what} did not come within {timeout:g} s; last: {last}")
                self._news.wait(left)

    def _add(self, fd: int, source: str) -> None:
        self._partial[fd] = b""
        self._selector.register(fd, selectors.EVENT_READ, source)

    def _read(self) -> None:
        while True:
            ready = self._selector.select()
            at = now()
            for key, _events in ready:
                fd = key.fd
                if fd == self._stop:
                    return
                with suppress(BlockingIOError):
                    self._take(fd, key.data, at, os.read(fd, 65536))

    def _take(self, fd: int, source: str, at: float, data: bytes) -> None:
        if not data:
            self._selector.unregister(fd)  # all writers have closed it; closed by us at the end
            return
        *lines, self._partial[fd] = (self._partial[fd] + data).split(b"\n")
        with self._news:
            self._all += [Report(at, source, line.decode(errors="replace")) for line in lines]
            self._news.notify_all()
