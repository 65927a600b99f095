"""What a znode's path may be, and its parts.

Source: ZooKeeper's PathUtils.validatePath (3.8), as its documentation describes the rules.

Rule of this file: a path is valid or not; none is ever put right.
"""

from __future__ import annotations

import re

__all__ = ["ancestors", "name", "parent", "problem"]


_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[ -.0-~]+)+").fullmatch
"""Most paths are of printable ASCII, and nothing is wrong with them."""


def problem(path: str, *, sequential: bool = False) -> str | None:
    """Why `path` is no valid path, or None. A sequential create may end in a slash."""
    if not path:
        return "a path cannot be empty"
    if _PLAIN(path):
        return None
    if path[0] != "/":
        return "a path begins with /"
    if sequential:
        path += "1"
    if len(path) == 1:
        return None
    if path[-1] == "/":
        return "a path does not end with /"
    for part in path[1:].split("/"):
        if not part:
            return "a path has no empty name in it"
        if part in (".", ".."):
            return "a path has no . or .. in it"
    for char in path:
        code = ord(char)
        if code == 0:
            return "a path has no null character in it"
        if code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or code >= 0xFFF0:
            # beyond 0xFFFF too: Java sees such a character as two surrogates, and refuses those
            return f"the character {code:#x} is not allowed in a path"
    return None


def parent(path: str) -> str:
    """The path above; the root is its own parent."""
    return path[: path.rindex("/")] or "/"


def name(path: str) -> str:
    """The last part of a path; "" for the root."""
    return path[path.rindex("/") + 1 :]


def ancestors(path: str) -> list[str]:
    """Every path above `path` but the root, outermost first."""
    parts = path[1:].split("/")[:-1]
    return ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
