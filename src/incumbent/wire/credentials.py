"""Who a client is: what it shows, and what the server makes of it.

Rule of this file: credentials are bytes here; what they prove is the server's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from incumbent.wire.jute import BUFFER, INT, STRING
from incumbent.wire.protocol import Op
from incumbent.wire.record import IDS, Request

__all__ = ["AuthPacket", "Sasl", "WhoAmI"]


@dataclass(frozen=True, slots=True)
class AuthPacket(Request):
    type: int
    scheme: str
    auth: bytes | None

    op: ClassVar[Op] = Op.AUTH
    layout: ClassVar = (INT, STRING, BUFFER)


@dataclass(frozen=True, slots=True)
class Sasl(Request):
    """One step of a SASL exchange; answers the other side's token."""

    token: bytes | None

    op: ClassVar[Op] = Op.SASL
    layout: ClassVar = (BUFFER,)
    answer: ClassVar = (BUFFER,)


@dataclass(frozen=True, slots=True)
class WhoAmI(Request):
    """Answers the connection's ids, as (scheme, name of the user)."""

    op: ClassVar[Op] = Op.WHO_AM_I
    answer: ClassVar = (IDS,)
