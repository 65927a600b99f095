"""How a directory names its contenders, and who is before whom.

A queue's znodes are ordered by the ten digits that ZooKeeper appends. Programs differ in what
stands before them, and some order by that text: then two of them in one directory would each
believe to be first. So a directory has one dialect, chosen or detected:

- `ours`, which is kazoo's: `<anything>__lock__<ten digits>`, readers `__rlock__`. Our own names
  are `<session id in hex>-<id>__lock__…`; the id is a nonce by which a lost reply is read back.
- `plain:<prefix>`: the whole name is the prefix and ten digits (`node_`, `n_`: the election of
  ZooKeeper's recipes page and of many tutorials, which sort whole names). No room for a nonce.

Source: kazoo 2.11, recipe/lock.py (`__lock__(-?\\d{10})$` searched in each name, compared as
text); ZooKeeper's "Recipes and Solutions".

Rule of this file: pure. Order is by suffix alone; a child that somebody would order otherwise
is `MixedDialects`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from incumbent.errors import MixedDialects, QueueExhausted

__all__ = ["LAST_SEQUENCE", "OURS", "Contender", "Dialect", "detect", "dialect"]

LAST_SEQUENCE = 2_147_000_000
"""From here on nobody is let in. The counter sticks at 2^31 - 1 (measured), where order ends."""

_SEQUENTIAL = re.compile(r"-?[0-9]{10}$")
_OURS = re.compile(r"__(r?)lock__(-?[0-9]{10})$")


@dataclass(frozen=True, slots=True, order=True)
class Contender:
    """A znode of the queue. `is_reader`: kazoo's `__rlock__`."""

    sequence: int
    name: str
    is_reader: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of naming contenders. `prefix` is None for ours."""

    prefix: str | None = None

    def __str__(self) -> str:
        return "ours" if self.prefix is None else f"plain:{self.prefix}"

    @property
    def has_nonce(self) -> bool:
        """Can a contender be recognised by its name alone?"""
        return self.prefix is None

    def stem(self, session_id: int, nonce: str) -> str:
        """What to create: the name without its ten digits."""
        if self.prefix is not None:
            return self.prefix
        return f"{session_id & 0xFFFF_FFFF_FFFF_FFFF:x}-{nonce}__lock__"

    def contender(self, name: str) -> Contender | None:
        """`name` as a contender of this dialect, or None."""
        if self.prefix is None:
            match = _OURS.search(name)
            return Contender(int(match[2]), name, bool(match[1])) if match else None
        suffix = name[len(self.prefix) :]
        if name.startswith(self.prefix) and _SEQUENTIAL.fullmatch(suffix):
            return Contender(int(suffix), name)
        return None

    def rank(self, path: str, children: Iterable[str]) -> tuple[Contender, ...]:
        """The contenders among `children` of `path`, first one first.

        Raises `MixedDialects` for a child that takes part by somebody else's rules: in `ours`
        any other sequential name (kazoo passes over the rest, and so do we); in a plain
        directory any other name at all, since tutorials sort whatever is there.
        Raises `QueueExhausted` if the counter has wrapped.
        """
        found = []
        for name in sorted(children):
            contender = self.contender(name)
            if contender is None:
                if self.prefix is not None or _SEQUENTIAL.search(name):
                    raise MixedDialects(path, name, str(self))
                continue
            if contender.sequence < 0:
                raise QueueExhausted(path, contender.sequence)
            found.append(contender)
        return tuple(sorted(found))

    def admit(self, path: str, name: str) -> Contender:
        """Our own new znode as a contender; raises `QueueExhausted` near the counter's end."""
        contender = self.contender(name)
        assert contender is not None, f"{name} is not of the {self} dialect"
        if not 0 <= contender.sequence < LAST_SEQUENCE:
            raise QueueExhausted(path, contender.sequence)
        return contender


OURS = Dialect()


def dialect(text: str) -> Dialect:
    """A dialect by its name in settings: `ours`, or `plain:` and a prefix."""
    if text == "ours":
        return OURS
    kind, _, prefix = text.partition(":")
    if kind != "plain" or not prefix or "/" in prefix:
        raise ValueError(
            f"{text!r} is no dialect: expected ours, or plain:PREFIX as in plain:node_"
        )
    return Dialect(prefix)


def detect(path: str, children: Iterable[str], default: Dialect = OURS) -> Dialect:
    """The dialect of those who stand in `path` now; `default` if nobody does.

    A prefix is believed only if it has no digit: one with a digit has an id in it (Curator's
    `_c_<uuid>-lock-`, guid-lock-, x-<session>-), and is somebody's dialect that we don't speak.
    Raises `MixedDialects`, naming such a child, or one that disagrees with the others.
    """
    found: Dialect | None = None
    for name in sorted(children):
        if not _SEQUENTIAL.search(name):
            continue
        if OURS.contender(name):
            this = OURS
        else:
            prefix = name[:-10]
            if not prefix or prefix.startswith("_c_") or any(c.isdigit() for c in prefix):
                raise MixedDialects(path, name, str(found or default))
            this = Dialect(prefix)
        if found is not None and this != found:
            raise MixedDialects(path, name, str(found))
        found = this
    return found or default
