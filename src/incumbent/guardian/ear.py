"""What a program says of itself: datagrams as for systemd's sd_notify, or a line on a descriptor.

The ear is in the tree's first process: whoever floods it holds up nobody but its own tree. The
socket has an abstract name that the kernel chooses, so that nothing is left on a disk; anybody on
the machine may send to it, and the kernel says who it was.

Rule of this file: only processes of the tree are heard, and however much they say, no more than
ten times a second something is passed on; the newest of each word is never lost.
"""

from __future__ import annotations

import array
import math
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

from incumbent.guardian import kernel
from incumbent.guardian.messages import Start

__all__ = ["PASSED_ON_EVERY", "Ear", "Words"]

PASSED_ON_EVERY = 0.1
"""Seconds between two things passed on, at least."""
_AT_ONCE = 64
"""Datagrams read in one go: the deadline has its turn in between."""
_LONGEST_LINE = 4096
_LONGEST_STATUS = 300
_CREDENTIALS = struct.Struct("iII")


class Words:
    """What was said and not passed on yet. Times in seconds of boottime."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._quiet_until = 0.0

    def take(self, datagram: bytes) -> None:
        """The lines of one sd_notify datagram; those not known here are passed over."""
        for line in datagram.decode(errors="replace").split("\n"):
            name, _, value = line.partition("=")
            match name, value:
                case "READY", "1":
                    self.add(ready=True)
                case "STOPPING", "1":
                    self.add(stopping=True)
                case "WATCHDOG", "1":
                    self.add(alive=True)
                case "WATCHDOG", "trigger":
                    self.add(hung=True)
                case "STATUS", _:
                    self.add(status=_printable(value)[:_LONGEST_STATUS])
                case "EXTEND_TIMEOUT_USEC", _ if value.isdecimal() and len(value) < 16:
                    self.add(extend=int(value) / 1e6)

    def add(self, **said: Any) -> None:
        self._said |= said

    def due_at(self) -> float:
        """When `passed_on` has something; inf: it has not."""
        return self._quiet_until if self._said else math.inf

    def passed_on(self, now: float) -> dict[str, Any]:
        """What is to be passed on now; nothing where it is too early."""
        if now < self.due_at():
            return {}
        said, self._said = self._said, {}
        self._quiet_until = now + PASSED_ON_EVERY
        return said


class Ear:
    """Of one tree, in its first process. Poll `descriptors`; `hear` what is readable."""

    def __init__(self, start: Start, *, is_sealed: bool) -> None:
        """Raises OSError."""
        self.words = Words()
        self._is_sealed = is_sealed
        self._socket: socket.socket | None = None
        self._line_read, self._line_write = -1, -1
        self._line = b""
        if start.notify:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.setblocking(False)
            self._socket.bind("")
        if start.ready_fd is not None:
            self._line_read, self._line_write = os.pipe()
            os.set_blocking(self._line_read, False)

    @property
    def environment(self) -> dict[str, str]:
        """What tells the program where to speak."""
        if self._socket is None:
            return {}
        return {"NOTIFY_SOCKET": "@" + self._socket.getsockname()[1:].decode()}

    @property
    def line_write(self) -> int:
        """The end that the program gets; -1: none."""
        return self._line_write

    def keep_only_ours(self) -> None:
        """The program has its end."""
        if self._line_write >= 0:
            os.close(self._line_write)

    def descriptors(self) -> list[int]:
        return [
            *([self._socket.fileno()] if self._socket is not None else []),
            *([self._line_read] if self._line_read >= 0 else []),
        ]

    def hear(self, ready: Iterable[int]) -> int | None:
        """Take in what is readable; a descriptor that is at its end now is closed and returned."""
        if self._socket is not None and self._socket.fileno() in ready:
            for _ in range(_AT_ONCE):
                if not self._hear_datagram(self._socket):
                    break
        return self._hear_line() if self._line_read in ready else None

    def _hear_datagram(self, sock: socket.socket) -> bool:
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(64)
        try:
            data, extra, _, _ = sock.recvmsg(_LONGEST_LINE, room)
        except OSError:
            return False
        passed = array.array("i")
        sender = 0
        for level, kind, raw in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = int(_CREDENTIALS.unpack(raw[: _CREDENTIALS.size])[0])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                passed.frombytes(raw[: len(raw) - len(raw) % passed.itemsize])
        if self._is_of_the_tree(sender):
            self.words.take(data)
        for fd in passed:  # only now: BARRIER=1 waits for it, and lives until then
            os.close(fd)
        return True

    def _is_of_the_tree(self, pid: int) -> bool:
        """Sealed: whoever has a pid in our namespace. Swept: whose ancestors lead to us."""
        if self._is_sealed:
            return pid > 0
        me = os.getpid()
        try:
            while pid > 1 and pid != me:
                pid = kernel.Process(pid).parent
        except OSError:
            return False
        return pid == me

    def _hear_line(self) -> int | None:
        try:
            data = os.read(self._line_read, _LONGEST_LINE)
        except BlockingIOError:
            return None
        self._line += data
        if b"\n" in self._line:
            self.words.add(ready=True)
        elif data and len(self._line) < _LONGEST_LINE:
            return None
        closed, self._line_read = self._line_read, -1
        os.close(closed)
        return closed


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
