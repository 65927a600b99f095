"""The states of a client, as a table.

    CONNECTING ──▶ CONNECTED ◀──▶ SUSPENDED
        │            │  ▲            │
        └──▶ LOST ◀──┘  │            │        every state ──▶ CLOSED
              ▲ └───────┘            │
              └──────────────────────┘

READ_ONLY stands where CONNECTED does, and goes to LOST or CLOSED only.

CONNECTING is only before the first connection. SUSPENDED: no connection, the session may live.
READ_ONLY: a session that one server made who is cut off from its ensemble, for clients that
allow that; nothing can be written, nothing is proven, and it ends with the connection.
LOST: the session is over, by the server's word or by our own clock; the next CONNECTED is
another session. CLOSED is for good.

Rule of this file: between two session ids there is exactly one LOST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

__all__ = ["MOVES", "State", "StateCell"]


class State(Enum):
    """What a client can say about its session."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    READ_ONLY = "read_only"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


MOVES: Mapping[State, tuple[State, ...]] = {
    State.CONNECTING: (State.CONNECTED, State.READ_ONLY, State.LOST, State.CLOSED),
    State.CONNECTED: (State.SUSPENDED, State.LOST, State.CLOSED),
    State.READ_ONLY: (State.LOST, State.CLOSED),
    State.SUSPENDED: (State.CONNECTED, State.LOST, State.CLOSED),
    State.LOST: (State.CONNECTED, State.READ_ONLY, State.CLOSED),
    State.CLOSED: (),
}


class StateCell:
    """The present state and who is told of a change.

    A listener may call anything of the client, also what changes the state again: it and the
    others then hear of that change after this one.
    """

    __slots__ = ("_added", "_is_telling", "_listeners", "_log", "_untold", "now")

    def __init__(self, log: Callable[[str], None]) -> None:
        self.now = State.CONNECTING
        self._log = log
        self._listeners: dict[int, Callable[[State], None]] = {}
        self._added = 0
        self._untold: list[State] = []
        self._is_telling = False

    def move(self, to: State) -> None:
        assert to in MOVES[self.now], f"{self.now.name} does not become {to.name}"
        self.now = to
        self._untold.append(to)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._untold:
                state = self._untold.pop(0)
                for number in tuple(self._listeners):
                    if number in self._listeners:
                        self._tell(self._listeners[number], state)
        finally:
            self._is_telling = False

    def watch(self, listener: Callable[[State], None]) -> Callable[[], None]:
        """Call `listener` at each change from now on; the result takes it off again."""
        self._added = number = self._added + 1
        self._listeners[number] = listener

        def remove() -> None:
            self._listeners.pop(number, None)

        return remove

    def _tell(self, listener: Callable[[State], None], state: State) -> None:
        try:
            listener(state)
        except Exception as error:  # a stranger's code: it must not keep others from hearing
            self._log(f"a state listener failed at {state.name}: {error!r}")
