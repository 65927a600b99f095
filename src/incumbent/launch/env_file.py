"""What stands in an env_file.

Rule of this file: pure, and no value is ever part of a message.
"""

from __future__ import annotations

import re

from incumbent.errors import SpecError, SpecErrors

__all__ = ["parse_env_file"]

_VARIABLE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`"}


def parse_env_file(text: str, name: str) -> dict[str, str]:
    """The variables of an env_file. Raises `SpecErrors` with every wrong line of it.

    One KEY=VALUE on a line, `export` before it allowed; empty lines and lines from `#` on are
    passed over. A bare value goes to the end of the line, a `#` in it included. 'single quotes'
    are literal; "double quotes" know \\n, \\t, \\r, \\", \\\\, \\$ and \\`. Nothing is expanded.
    A later line wins. A value is never part of a message: it may be a secret.
    """
    variables: dict[str, str] = {}
    problems: list[SpecError] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _VARIABLE.fullmatch(line)
        if match is None:
            what = "expected KEY=VALUE, with a KEY of letters, digits and `_`"
            problems.append(SpecError(name, number, "", what))
            continue
        try:
            variables[match[1]] = _unquoted(match[2])
        except ValueError as error:
            problems.append(SpecError(name, number, match[1], str(error)))
    if problems:
        raise SpecErrors(problems)
    return variables


def _unquoted(text: str) -> str:
    """A value without its quotes. Raises ValueError."""
    if "\0" in text:
        raise ValueError("a null character cannot be part of a variable")
    if not text or text[0] not in "\"'":
        return text
    if text[0] == "'":
        value, quote, rest = text[1:].partition("'")
        closed = bool(quote)
    else:
        value, closed, rest = _double_quoted(text[1:])
    if not closed:
        raise ValueError(f"the quote {text[0]} is not closed on this line")
    rest = rest.strip()
    if rest and not rest.startswith("#"):
        raise ValueError("expected nothing after the closing quote")
    return value


def _double_quoted(text: str) -> tuple[str, bool, str]:
    """The value up to the closing quote, whether there is one, and what follows it."""
    value = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char == '"':
            return value, True, text[at + 1 :]
        if char == "\\" and at + 1 < len(text) and text[at + 1] in _ESCAPES:
            char = _ESCAPES[text[at + 1]]
            at += 1
        value += char
        at += 1
    return value, False, ""
