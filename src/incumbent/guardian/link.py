"""An agent's process, and the guardian's end of the link to it: bytes in both directions,
never blocking.

Rule of this file: what an agent sent before its end is read before the end is reported; an
agent that does not read is not waited for.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence

from incumbent.errors import RemoteWireError
from incumbent.guardian import actions as a
from incumbent.guardian import codec
from incumbent.guardian import messages as m

__all__ = ["AgentProcess", "Link"]

_BACKLOG = 16 * 1024 * 1024  # bytes that an agent may leave unread; ALIVE tells sooner


class Link:
    """One agent's link. After `is_closed` it is silent; the owner closes the socket."""

    def __init__(self, sock: socket.socket, generation: int) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.generation = generation
        self.is_closed = False
        self._splitter = codec.Splitter()
        self._unsent = bytearray()

    def read(self) -> list[a.Event]:
        """Everything that has arrived; with the end of the stream LinkClosed, once."""
        events: list[a.Event] = []
        while not self.is_closed:
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                return events
            except OSError:
                data = b""
            if not data:
                self.is_closed = True
                events.append(a.LinkClosed(self.generation))
                return events
            try:
                for message in self._splitter.feed(data):
                    if not isinstance(message, m.FromAgent):
                        raise RemoteWireError(f"{message.tag} is not for a guardian")
                    events.append(a.Received(self.generation, message))
            except RemoteWireError as error:
                self.is_closed = True
                events.append(a.AgentBroke(self.generation, str(error)))
        return events

    def send(self, message: m.FromGuardian) -> None:
        if len(self._unsent) < _BACKLOG:
            self._unsent += codec.encode(message)
        self.flush()

    def flush(self) -> None:
        """Send what can be sent now."""
        try:
            while self._unsent:
                del self._unsent[: self.sock.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # it is gone: its end will be read

    @property
    def has_unsent(self) -> bool:
        """Call `flush` when the socket is writable."""
        return bool(self._unsent)


class AgentProcess:
    """An agent's process and our end of its link. Raises OSError, ValueError."""

    def __init__(self, agent_argv: Sequence[str]) -> None:
        self.sock, theirs = socket.socketpair()
        argv = [*agent_argv, "--link-fd", str(theirs.fileno())]
        theirs.set_inheritable(True)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setsid=True,  # a terminal's signals are for us only
                setsigmask=(),
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except BaseException:
            self.sock.close()
            raise
        finally:
            theirs.close()
        self.pidfd = os.pidfd_open(self.pid)
