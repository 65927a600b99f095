"""A database copied while it is in use: in pieces, as bytes, and made into a database again.

Rule of this file: a copy is everything as of one zxid. While the store does not fold, the state
stays as it is and the log only grows, so that state first, log last is such a copy, whatever is
committed in between.

A copy is a row of pieces. Each is a table's name and some of its rows; the first of a table is
the statement that makes it, and the last of all has no table.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

__all__ = ["END", "Piece", "build", "pack_piece", "pieces", "sync_directory", "unpack_pieces"]

Value: TypeAlias = int | str | bytes
Piece: TypeAlias = tuple[str, list[tuple[Value, ...]]]

END: Piece = ("", [])

_PIECE_BYTES = 128 * 1024
"""About so much is read at a time: a millisecond."""

_LENGTH = struct.Struct(">I")
_INT = struct.Struct(">q")


_ALL = 2**63 - 1


def pieces(
    database: sqlite3.Connection, durable: Callable[[], int] = lambda: _ALL
) -> Iterator[Piece]:
    """A copy. Between two pieces the log may grow; nothing else may change.

    durable  the last zxid of the log that counts, now
    """
    tables = database.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name = 'log', name"
    ).fetchall()
    for table, statement in tables:
        yield table, [(statement,)]
        key = database.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchone()[0]
        rows = _read(database, f"SELECT * FROM {table} ORDER BY {key}", ())
        while rows:
            if table == "log":
                rows = [row for row in rows if int(row[0]) <= durable()]
                if not rows:
                    break
            yield table, rows
            after = f"SELECT * FROM {table} WHERE {key} > ? ORDER BY {key}"
            rows = _read(database, after, (rows[-1][0],))
    yield END


def _read(
    database: sqlite3.Connection, query: str, values: tuple[Value, ...]
) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    size = 0
    with closing(database.execute(query, values)) as cursor:
        for row in cursor:
            rows.append(row)
            size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
            if size >= _PIECE_BYTES:
                break
    return rows


def build(path: Path, copy: Iterable[Piece]) -> None:
    """The copy as the database `path`, made readable to its owner only, synced.

    Raises `OSError`, `sqlite3.Error`, `ValueError` if the copy has no end; then `path` is gone.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = OFF")  # all or nothing: it is renamed later
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN")
            _fill(database, copy)
            database.execute("COMMIT")
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def _fill(database: sqlite3.Connection, copy: Iterable[Piece]) -> None:
    made: set[str] = set()
    for table, rows in copy:
        if not table:
            return
        if table not in made:
            made.add(table)
            database.execute(str(rows[0][0]))
            continue
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    raise ValueError("it ends in the middle")


def sync_directory(path: Path) -> None:
    """What was renamed in there stays renamed. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- as bytes


def pack_piece(piece: Piece) -> bytes:
    table, rows = piece
    out = bytearray(_LENGTH.size)
    _write(out, table)
    for row in rows:
        out += b"("
        for value in row:
            _write(out, value)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


def unpack_pieces(chunks: Iterable[bytes]) -> Iterator[Piece]:
    """Pieces again, of bytes that come in any portions. Raises `ValueError` for others."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if len(buffer) < _LENGTH.size + length:
                break
            yield _unpack(bytes(buffer[_LENGTH.size : _LENGTH.size + length]))
            del buffer[: _LENGTH.size + length]


def _unpack(body: bytes) -> Piece:
    table, at = _read_value(body, 0)
    rows: list[tuple[Value, ...]] = []
    row: list[Value] = []
    while at < len(body):
        if body[at : at + 1] == b"(":
            if row:
                rows.append(tuple(row))
                row = []
            at += 1
            continue
        value, at = _read_value(body, at)
        row.append(value)
    if row:
        rows.append(tuple(row))
    return str(table), rows


def _write(out: bytearray, value: Value) -> None:
    if isinstance(value, int):
        out += b"i" + _INT.pack(value)
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        out += b"s" + _LENGTH.pack(len(data)) + data
    else:
        out += b"b" + _LENGTH.pack(len(value)) + value


def _read_value(body: bytes, at: int) -> tuple[Value, int]:
    try:
        kind = body[at : at + 1]
        if kind == b"i":
            return _INT.unpack_from(body, at + 1)[0], at + 1 + _INT.size
        (length,) = _LENGTH.unpack_from(body, at + 1)
        begin = at + 1 + _LENGTH.size
        data = body[begin : begin + length]
        if len(data) < length or kind not in (b"s", b"b"):
            raise ValueError("unreadable")
        value: Value = data if kind == b"b" else data.decode("utf-8", "surrogatepass")
        return value, begin + length
    except struct.error as error:
        raise ValueError("unreadable") from error
