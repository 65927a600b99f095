"""The first frame each way: a session is asked for, and granted or refused.

Rule of this file: old clients know no read-only flag; whoever reads keeps whether it was there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from incumbent.errors import LocalWireError
from incumbent.wire.jute import BOOL, BUFFER, Reader

__all__ = ["ConnectRequest", "ConnectResponse"]

_CONNECT_REQUEST = struct.Struct(">iqiq")
_CONNECT_RESPONSE = struct.Struct(">iiq")


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """The first frame of a connection. `read_only` is None where an old client omits it."""

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None = False
    version: int = 0

    def encode(self) -> bytes:
        out = bytearray(
            _CONNECT_REQUEST.pack(self.version, self.last_zxid, self.timeout_ms, self.session_id)
        )
        BUFFER.write(out, self.password)
        if self.read_only is not None:
            BOOL.write(out, self.read_only)
        return bytes(out)

    @classmethod
    def decode(cls, body: bytes) -> ConnectRequest:
        reader = Reader(body)
        version, last_zxid, timeout_ms, session_id = reader.unpack(_CONNECT_REQUEST)
        password = BUFFER.read(reader) or b""
        read_only = BOOL.read(reader) if reader.left else None
        return cls(last_zxid, timeout_ms, session_id, password, read_only, version)


@dataclass(frozen=True, slots=True)
class ConnectResponse:
    """The answer: timeout 0 and session id 0 mean that the session is refused (expired)."""

    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None = False
    version: int = 0

    def encode(self) -> bytes:
        if len(self.password) > 1024:
            raise LocalWireError("a session password of over 1024 bytes")
        out = bytearray(_CONNECT_RESPONSE.pack(self.version, self.timeout_ms, self.session_id))
        BUFFER.write(out, self.password)
        if self.read_only is not None:
            BOOL.write(out, self.read_only)
        return bytes(out)

    @classmethod
    def decode(cls, body: bytes) -> ConnectResponse:
        reader = Reader(body)
        version, timeout_ms, session_id = reader.unpack(_CONNECT_RESPONSE)
        password = BUFFER.read(reader) or b""
        read_only = BOOL.read(reader) if reader.left else None
        return cls(timeout_ms, session_id, password, read_only, version)
