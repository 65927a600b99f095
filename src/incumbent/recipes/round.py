"""What the znode of a double barrier's member says: its state, and its round.

Rule of this file: pure; what is written is read again as it was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from incumbent.errors import MalformedValue

__all__ = ["MOST", "Answer", "Word"]

MOST = 100
"""Members at most: each one's wish to leave is a multi that names them all."""


class Answer(Enum):
    """What came of saying that we want to leave."""

    ALL_LEFT = auto()
    NOT_YET = auto()
    ONE_IS_LOST = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a member's znode says. `members`, their names, stands with the first of them only."""

    state: str = ""
    round: str = ""
    first: str = ""
    members: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str, data: bytes | None) -> Word:
        """Raises `MalformedValue` if somebody else wrote there."""
        if not data:
            return cls()
        try:
            said = json.loads(data)
            return cls(
                state=str(said["state"]),
                round=str(said["round"]),
                first=str(said["first"]),
                members=tuple(map(str, said["members"])),
            )
        except (ValueError, TypeError, KeyError):
            raise MalformedValue(path, data, "what members of a double barrier write") from None

    def data(self, state: str, members: Sequence[str] = ()) -> bytes:
        said = {"state": state, "round": self.round, "first": self.first}
        return json.dumps(said | {"members": list(members)}).encode()
