"""A seat's output: a pipe whose read end the guardian keeps, and a child that writes files.

The guardian makes the pipe and forks the writer; it never reads the pipe nor touches a file
itself. The writer puts the time before each line (UTC, `2026-01-31T12:00:00.123Z `) and
keeps the program's bytes as they are; a chunk of output is stamped when it is read. Files
have 10 MB, five of them: `web-0.log`, `web-0.log.1` … `.4`.

Inside the writer one thread reads and one writes, with a bounded spool between them: a
healthy disk that is slower than a flood slows the program down, as a terminal would; a
full or stuck disk loses lines, counted and said as soon as it works again. A writer that
died is replaced, and so is one that leaves the pipe full (frozen).

Rule of this file: nothing that a disk can do blocks the reading of the pipe.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from incumbent.guardian import kernel
from incumbent.guardian.shared_number import SharedNumber

__all__ = ["FILES", "FILE_SIZE", "LogPipe", "Rotating", "Stamp", "relay", "stamped", "write_log"]

FILE_SIZE = 10 * 1000 * 1000
FILES = 5
_CHUNK = 64 * 1024
_SPOOL = 4 * 1024 * 1024  # bytes between reader and writer thread
_PATIENCE = 0.2  # seconds that a full spool is waited for before lines are lost
_SICK_PAUSE = 0.5  # seconds between two tries on a disk that fails


class LogPipe:
    """The guardian's side. `pid` is the writer's, 0 while there is none; poll `pidfd`, and when
    it is readable call `bury`, then either `close` or, if not `is_young`, `replace`."""

    def __init__(self, path: str, secrets: Sequence[bytes]) -> None:
        """As yet without a writer: `replace`. Raises OSError."""
        self.path = path
        self._secrets = tuple(secrets)
        self.read_end, self.write_end = os.pipe()
        self.pid, self.pidfd = 0, -1

    def close_write_end(self) -> None:
        """After the program was forked: the end of its tree shall be the end of the file."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def bury(self) -> bool:
        """The writer is dead: reap it. True: it had come to the end of the output."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)
        self.pid, self.pidfd = 0, -1
        return found is not None and found.si_code == os.CLD_EXITED and found.si_status == 0

    def replace(self, note: str) -> None:
        """A new writer, which writes `note` first. Raises OSError if none can be forked."""
        self.progress = SharedNumber()
        self._seen_progress = -1
        self.is_young = True  # one that dies at once is not followed at once
        pid = os.fork()
        if pid == 0:
            _be_writer(self, note, self._secrets)
        self.progress.keep_from_later_forks()
        self.pid, self.pidfd = pid, os.pidfd_open(pid)

    def look(self) -> bool:
        """To be called each second; True: there is no writer, `replace` it.

        One that has read nothing since the last look although there was something is frozen
        and is killed: a living one empties the pipe, whatever its disk does.
        """
        self.is_young = False
        if self.pid == 0:
            return True
        progress, before = self.progress.read(), self._seen_progress
        self._seen_progress = progress if kernel.is_readable(self.read_end) else -1
        if progress == before:
            kernel.kill(self.pidfd)
        return False

    def close(self) -> None:
        """Let go of it: the writer ends by itself once it has written the rest."""
        self.close_write_end()
        os.close(self.read_end)
        if self.pidfd >= 0:
            os.close(self.pidfd)


def _be_writer(pipe: LogPipe, note: str, secrets: Sequence[bytes]) -> NoReturn:
    code = 1
    try:
        _settle_down(secrets, {2, pipe.read_end})
        write_log(pipe.read_end, Path(pipe.path), note, pipe.progress.write)
        code = 0
    finally:
        os._exit(code)


def _settle_down(secrets: Sequence[bytes], keep: set[int]) -> None:
    """In a fresh fork: be deaf to what is meant for the guardian, and own nothing of it."""
    kernel.reset_signals()
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, signal.SIG_IGN)  # it ends when the pipe does
    os.setsid()
    kernel.wipe(secrets)
    kernel.close_all_but(keep)


def relay(target: int) -> tuple[int, int]:
    """A child that copies a pipe to `target`: its pid, and the write end, which never blocks.

    For a stderr that is a file: its disk may hang, the guardian may not.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _settle_down((), {read_end, target})
            while data := os.read(read_end, _CHUNK):
                os.write(target, data)
        finally:
            os._exit(0)
    os.close(read_end)
    os.set_blocking(write_end, False)
    return pid, write_end


def write_log(
    read_end: int, path: Path, note: str = "", tell: Callable[[int], None] = lambda read: None
) -> None:
    """Read until the end of the file and write; `note` goes before the first line.

    `tell` is called with the number of bytes read so far.
    """
    read = 0
    spool = _Spool(_SPOOL)
    stamp = Stamp()
    writer = threading.Thread(target=_write_all, args=(spool, Rotating(path)), daemon=True)
    writer.start()
    if note:
        spool.add(stamp.put_on(f"[incumbent: {note}]\n".encode()))
    while data := os.read(read_end, _CHUNK):
        read += len(data)
        tell(read)
        spool.add(stamp.put_on(data))
    spool.finish()
    writer.join(timeout=5.0)


class Stamp:
    """Puts the time before each line, also when a line comes in pieces."""

    def __init__(self) -> None:
        self._is_new_line = True

    def put_on(self, data: bytes) -> bytes:
        stamp = f"{stamped(time.time())} ".encode()
        first = stamp if self._is_new_line else b""
        self._is_new_line = data.endswith(b"\n")
        body = data[:-1] if self._is_new_line else data
        return first + body.replace(b"\n", b"\n" + stamp) + (b"\n" if self._is_new_line else b"")


class _Spool:
    """Bytes between the two threads, bounded; what does not fit is counted in lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._lost = 0
        self._is_finished = False
        self._is_sick = False
        self._changed = threading.Condition()

    def add(self, data: bytes) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._size + len(data) <= self._limit or self._is_sick, _PATIENCE
            )
            if self._size + len(data) > self._limit:
                self._is_sick = True
                self._lost += data.count(b"\n")
                return
            self._chunks.append(data)
            self._size += len(data)
            self._changed.notify_all()

    def finish(self) -> None:
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()

    def take(self) -> tuple[bytes | None, int]:
        """The next chunk (None: there will be no more) and how many lines are lost before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._is_finished)
            self._is_sick = False
            lost, self._lost = self._lost, 0
            if not self._chunks:
                return None, lost
            chunk = self._chunks.popleft()
            self._size -= len(chunk)
            self._changed.notify_all()
            return chunk, lost

    def lose(self, lines: int) -> bool:
        """The disk refuses; True: nothing more will come, give up."""
        with self._changed:
            self._is_sick = True
            self._lost += lines
            return self._changed.wait_for(lambda: self._is_finished, _SICK_PAUSE)


def _write_all(spool: _Spool, log: Rotating) -> None:
    while True:
        chunk, lost = spool.take()
        said = f"[incumbent: {lost} lines lost]\n" if lost else ""
        try:
            if said:
                log.write(f"{stamped(time.time())} {said}".encode())
            if chunk is None:
                return
            log.write(chunk)
        except OSError:
            if spool.lose(lost + (chunk or b"").count(b"\n")):
                return


class Rotating:
    """Appends to `path`; a full file becomes `path.1`, and so on up to `files` in all.

    A lock on the file keeps the writer of the epoch before and ours apart; a file that was
    deleted or moved by hand is made again.
    """

    def __init__(self, path: Path, size: int = FILE_SIZE, files: int = FILES) -> None:
        self._path = path
        self._limit = size
        self._files = files
        self._fd = -1
        self._looked_at = 0.0

    def write(self, data: bytes) -> None:
        """All of `data`. Raises OSError: some of it may have been written."""
        try:
            self._ensure_open()
            if os.fstat(self._fd).st_size + len(data) > self._limit:
                self._rotate()
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._close()
            raise

    def _ensure_open(self) -> None:
        now = time.monotonic()
        if self._fd >= 0 and now < self._looked_at + 1.0:
            return
        self._looked_at = now
        if self._fd >= 0 and self._is_in_place():
            return
        self._close()
        give_up_at = now + 5.0
        while True:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o640)
            if time.monotonic() > give_up_at or (self._lock() and self._is_in_place()):
                return
            self._close()
            time.sleep(0.01)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_in_place(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{n}") for n in range(1, self._files))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)
        self._close()
        self._looked_at = 0.0
        self._ensure_open()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def stamped(at: float) -> str:
    """A moment of wall time, as it stands before a line."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{stamp}.{int(at * 1000) % 1000:03d}Z"
