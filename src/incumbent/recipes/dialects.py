"""How a directory names its contenders, and who is before whom.

A queue's znodes are ordered by the ten digits that ZooKeeper appends. Programs differ in what
stands before them, and some order by that text: then two of them in one directory would each
believe to be first. So a directory has one dialect, chosen or detected:

    ours            <session>-<id>__lock__NNNNNNNNNN    readers __rlock__; kazoo's
    curator-lock    _c_<uuid>-lock-NNNNNNNNNN           InterProcessMutex, LeaderSelector
    curator-latch   _c_<uuid>-latch-NNNNNNNNNN          LeaderLatch
    curator-rw      _c_<uuid>-__WRIT__NNNNNNNNNN        readers __READ__; InterProcessReadWriteLock
    plain:<prefix>  <prefix>NNNNNNNNNN                  `node_`, `n_`: tutorials

Before ours and Curator's stands an id, by which a lost reply is read back: the session and a
nonce, for Curator written as a UUID. A plain name has no room for one.

kazoo passes over names that it does not know; Curator and tutorials sort whatever is there, so
that in their directories any other child changes the order.

Source: kazoo 2.11, recipe/lock.py (`__lock__(-?\\d{10})$` searched in each name, compared as
text); Curator 5.4, StandardLockInternalsDriver and InterProcessReadWriteLock (what follows the
last `lock-`, `latch-`, `__READ__` or `__WRIT__`, else the whole name, compared as text, and all
children counted); ZooKeeper's "Recipes and Solutions".

Rule of this file: pure. Order is by suffix alone; a child that somebody would order otherwise
is `MixedDialects`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from incumbent.errors import MixedDialects, QueueExhausted

__all__ = ["LAST_SEQUENCE", "OURS", "Contender", "Dialect", "detect", "dialect"]

LAST_SEQUENCE = 2_147_000_000
"""From here on nobody is let in. The counter sticks at 2^31 - 1 (measured), where order ends."""

_SEQUENTIAL = re.compile(r"-?[0-9]{10}$")


class Contender(NamedTuple):
    """A znode of the queue; sorts by its number. `is_reader`: others that read do not keep it out."""

    sequence: int
    name: str
    is_reader: bool = False

    def keeps_out(self, *, a_reader: bool) -> bool:
        """Must one who comes later wait for this one?"""
        return not (self.is_reader and a_reader)


@dataclass(frozen=True, slots=True)
class _Form:
    """`pattern` finds a reader's mark and the digits; `word` and `reader` are what we write."""

    pattern: re.Pattern[str]
    word: str
    reader: str = ""

    def match(self, name: str) -> Contender | None:
        found = self.pattern.search(name)
        return Contender(int(found[2]), name, bool(found[1])) if found else None


def _curators(words: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:_c_[0-9a-fA-F-]+-)?{words}(-?[0-9]{{10}})$")


_FORMS: Mapping[str, _Form] = {
    "ours": _Form(re.compile(r"__(r?)lock__(-?[0-9]{10})$"), "__lock__", "__rlock__"),
    "curator-lock": _Form(_curators("()lock-"), "lock-"),
    "curator-latch": _Form(_curators("()latch-"), "latch-"),
    "curator-rw": _Form(_curators("(?:__WRIT__|(__READ__))"), "__WRIT__", "__READ__"),
}


@lru_cache(maxsize=4096)
def _match(kind: str, name: str) -> Contender | None:
    """Who waits in a long line reads the same names again and again."""
    return _FORMS[kind].match(name)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of naming contenders: `kind` as above, with a `prefix` if it is plain."""

    kind: str = "ours"
    prefix: str = ""

    def __str__(self) -> str:
        return f"plain:{self.prefix}" if self.kind == "plain" else self.kind

    @property
    def has_nonce(self) -> bool:
        """Can a contender be recognised by its name alone?"""
        return self.kind != "plain"

    @property
    def has_readers(self) -> bool:
        """Does it tell readers from writers?"""
        return self.kind in _FORMS and bool(_FORMS[self.kind].reader)

    def stem(self, session_id: int, nonce: str, *, is_reader: bool = False) -> str:
        """What to create: the name without its ten digits. `nonce`: 16 hexadecimal digits."""
        assert self.has_readers or not is_reader, f"{self} has no readers"
        if self.kind == "plain":
            return self.prefix
        form = _FORMS[self.kind]
        word = form.reader if is_reader else form.word
        session = session_id & 0xFFFF_FFFF_FFFF_FFFF
        if self.kind == "ours":
            return f"{session:x}-{nonce}{word}"
        digits = f"{session:016x}{nonce:0>16}"
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return f"_c_{'-'.join(parts)}-{word}"

    def is_reader(self, name: str) -> bool:
        contender = self.contender(name)
        return contender is not None and contender.is_reader

    def contender(self, name: str) -> Contender | None:
        """`name` as a contender of this dialect, or None."""
        if self.kind != "plain":
            return _match(self.kind, name)
        suffix = name[len(self.prefix) :]
        if name.startswith(self.prefix) and _SEQUENTIAL.fullmatch(suffix):
            return Contender(int(suffix), name)
        return None

    def rank(self, path: str, children: Iterable[str]) -> tuple[Contender, ...]:
        """The contenders among `children` of `path`, first one first.

        Raises `MixedDialects` for a child that takes part by somebody else's rules: in `ours`
        any other sequential name (kazoo passes over the rest, and so do we); elsewhere any
        other name at all. Raises `QueueExhausted` if the counter has wrapped.
        """
        found, others = [], []
        match = self.contender if self.kind == "plain" else partial(_match, self.kind)
        for name in children:
            if contender := match(name):
                found.append(contender)
            elif self.kind != "ours" or _SEQUENTIAL.search(name):
                others.append(name)
        if others:
            raise MixedDialects(path, min(others), str(self))
        found.sort()
        if found and found[0].sequence < 0:
            raise QueueExhausted(path, found[0].sequence)
        return tuple(found)

    def admit(self, path: str, name: str) -> Contender:
        """Our own new znode as a contender; raises `QueueExhausted` near the counter's end."""
        contender = self.contender(name)
        assert contender is not None, f"{name} is not of the {self} dialect"
        if not 0 <= contender.sequence < LAST_SEQUENCE:
            raise QueueExhausted(path, contender.sequence)
        return contender


OURS = Dialect()


def dialect(text: str) -> Dialect:
    """A dialect by its name in settings: one with a name, or `plain:` and a prefix."""
    if text in _FORMS:
        return Dialect(text)
    kind, _, prefix = text.partition(":")
    if kind != "plain" or not prefix or "/" in prefix:
        raise ValueError(
            f"{text!r} is no dialect: expected {', '.join(_FORMS)}, or plain:PREFIX as in "
            "plain:node_"
        )
    return Dialect("plain", prefix)


def detect(path: str, children: Iterable[str], default: Dialect = OURS) -> Dialect:
    """The dialect of those who stand in `path` now; `default` if nobody does.

    A prefix is believed only if it has no digit: one with a digit has an id in it (guid-lock-,
    x-<session>-), and is somebody's dialect that we don't speak.
    Raises `MixedDialects`, naming such a child, or one that disagrees with the others.
    """
    found: Dialect | None = None
    for name in sorted(children):
        if not _SEQUENTIAL.search(name):
            continue
        this = _spoken(name)
        if this is None:
            raise MixedDialects(path, name, str(found or default))
        if found is not None and this != found:
            raise MixedDialects(path, name, str(found))
        found = this
    return found or default


def _spoken(name: str) -> Dialect | None:
    is_protected = name.startswith("_c_")
    for kind, form in _FORMS.items():
        if (is_protected or kind == "ours") and form.match(name):
            return Dialect(kind)
    prefix = name[:-10]
    if not prefix or is_protected or any(c.isdigit() for c in prefix):
        return None
    return Dialect("plain", prefix)
