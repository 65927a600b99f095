"""Values named like secrets are never shown: `DB_PASSWORD`, `--api-token`, `user:…@host`.

Rule of this file: pure. By the name it is judged, and a name too many is no harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["MASK", "is_secret", "masked", "masked_words"]

MASK = "***"

_WORDS = (
    *("PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD"),
    *("SECRET", "TOKEN", "KEY", "AUTH", "CREDENTIAL", "PRIVATE"),
)
_IN_URL = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]+)@")


def is_secret(name: str) -> bool:
    """Whether a variable, option or setting of this name may have a secret for its value."""
    parts = re.split(r"[^A-Z0-9]+", name.upper())
    return any(part.endswith(_WORDS) or part.removesuffix("S").endswith(_WORDS) for part in parts)


def masked(name: str, value: str) -> str:
    """The value for people to see; of one with a password in a URL the rest."""
    return MASK if is_secret(name) else _IN_URL.sub(rf"\1:{MASK}@", value)


def masked_words(words: Sequence[str]) -> list[str]:
    """A command for people to see: `--password x`, `--password=x` and `TOKEN=x` without x."""
    shown: list[str] = []
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if before.startswith("-") and "=" not in before and is_secret(before) and word[:1] != "-":
            shown.append(MASK)
        elif equals:
            shown.append(f"{name}={masked(name, value)}")
        else:
            shown.append(_IN_URL.sub(rf"\1:{MASK}@", word))
        before = word
    return shown
