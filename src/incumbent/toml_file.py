"""A parsed TOML file that knows on which line each of its keys stands.

Rule of this file: `tomllib` alone decides what is valid and what it means; the scanner here only
locates, on text that `tomllib` has accepted.

A key path is a tuple of names and of positions in arrays: ("component", "web", "command", 1).
The scanner follows every TOML 1.0 form: tables, dotted and quoted keys, arrays of tables, inline
tables, arrays over several lines, all four kinds of string. Its limits: a table that is only
implied by a longer path has the line of the first such path, and columns are not kept.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from incumbent.errors import SpecError, SpecErrors

__all__ = ["KeyPath", "TomlFile", "did_you_mean", "kind", "parse_toml"]

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """What a file says (`data`) and where (`lines`); `name` is the file as shown to people."""

    name: str
    data: Mapping[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of a key path, or of the nearest one above it; 0 for the whole file."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 0

    def problem(self, path: KeyPath, text: str) -> SpecError:
        """The error that says `text` about `path`, at its line."""
        return SpecError(self.name, self.line(path), _dotted(path), text)


def parse_toml(raw: bytes, name: str) -> TomlFile:
    """Parse a file's bytes. Raises `SpecErrors` with the one syntax error that `tomllib` found."""
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecErrors([SpecError(name, line, "", "not UTF-8: expected a text file")]) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecErrors([_syntax_error(str(error), text, name)]) from None
    return TomlFile(name=name, data=data, lines=_Scanner(text).scan())


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the known word nearest to a mistyped one, ready to append; "" if none is near."""
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def kind(value: object) -> str:
    """What a TOML value is, with its article."""
    if isinstance(value, bool):
        return "a boolean"
    for types, words in (
        (str, "a string"),
        (int, "an integer"),
        (float, "a float"),
        (list, "a list"),
        (dict, "a table"),
    ):
        if isinstance(value, types):
            return words
    return "a date or time"


def _syntax_error(message: str, text: str, name: str) -> SpecError:
    what, _, place = message.rpartition(" (at ")
    at = re.match(r"line (\d+), column (\d+)", place)
    line = int(at[1]) if at else text.rstrip("\n").count("\n") + 1
    what = what[:1].lower() + what[1:]
    lines = text.splitlines()
    there = lines[line - 1] if line <= len(lines) else ""
    return SpecError(name, line, "", _habit(what, there, text) or f"not valid TOML: {what}")


def _habit(what: str, line: str, text: str) -> str:
    """What somebody meant who wrote this line of a broken file; "" where that is not plain."""
    if text.lstrip().startswith("{"):
        return "this looks like JSON; expected TOML: a [component.NAME] table for each program"
    header = re.match(r"\s*\[([^]]+)\]", line)
    if header and "twice" in what:
        return f"[{header[1]}] stands here for the second time; expected each table once"
    if re.match(r"\s*(- |[\w-]+:(\s|$))", line):
        return "this looks like YAML; expected TOML: `[component.NAME]`, and below it `key = value`"
    if any(quote in line for quote in "“”„‘’«»"):
        return 'typographic quotes; expected plain ones: "'
    word = re.match(r"\s*([\w.-]+)\s*=\s*([A-Za-z/~.].*)", line)
    if word and not re.match(r"(true|false|inf|nan)\b", word[2]):
        mark = '"' if '"' not in word[2] else "'" if "'" not in word[2] else '"""'
        return f"text needs quotes: expected {word[1]} = {mark}…{mark}"  # it may be a secret
    if re.match(r"""\s*[\w.-]+\s*=\s*"[^"]*"\s*[^\s",#]""", line):
        return "a string ends at its first quote: quotes within it want '…' around it, or a list"
    key = re.match(r"\s*([\w-]+)\s*=", line)
    if key and "overwrite" in what:
        return f"`{key[1]}` stands here for the second time; expected each key once"
    return ""


def _dotted(path: KeyPath) -> str:
    """A key path as one would write it: component."my web".command[1]."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            out += ("." if out else "") + (part if bare else '"' + part + '"')
    return out


_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""{1,3}' r"|'''.*?'''{1,3}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]+")


class _Scanner:
    """One pass over a valid text. Each method leaves `at` behind what it has read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._newlines = 0  # newlines before `_counted`
        self._counted = 0
        self._last: dict[KeyPath, int] = {}  # array of tables → position of its last table

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._blank()
        return self.lines

    def _header(self) -> KeyPath:
        double = self.text.startswith("[[", self.at)
        line = self._line()
        self.at += 2 if double else 1
        path: KeyPath = ()
        names = self._key()
        for position, name in enumerate(names):
            path += (name,)
            if position < len(names) - 1:
                self.lines.setdefault(path, line)
                if path in self._last:
                    path += (self._last[path],)
        if double:
            self.lines.setdefault(path, line)
            self._last[path] = self._last.get(path, -1) + 1
            path += (self._last[path],)
        self.lines[path] = line
        self._blank()
        self.at += 2 if double else 1
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for name in self._key():
            path += (name,)
            self.lines.setdefault(path, line)
        self.at += 1  # "="
        self._value(path)

    def _key(self) -> list[str]:
        """A dotted key, up to what follows it."""
        names: list[str] = []
        while True:
            self._blank()
            if quoted := _STRING.match(self.text, self.at):
                names.append(tomllib.loads(f"key = {quoted[0]}")["key"])
                self.at = quoted.end()
            else:
                bare = _BARE.match(self.text, self.at)
                assert bare is not None, f"no key at offset {self.at} of a text tomllib accepted"
                names.append(bare[0])
                self.at = bare.end()
            self._blank()
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _value(self, path: KeyPath) -> None:
        self._blank()
        if self.text[self.at] == "[":
            self._array(path)
        elif self.text[self.at] == "{":
            self._inline_table(path)
        else:
            value = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            assert value is not None, f"no value at offset {self.at} of a text tomllib accepted"
            self.at = value.end()

    def _array(self, path: KeyPath) -> None:
        self.at += 1
        position = 0
        while self._more("]"):
            self.lines[(*path, position)] = self._line()
            self._value((*path, position))
            position += 1

    def _inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while self._more("}"):
            self._pair(path)

    def _more(self, end: str) -> bool:
        """Whether another element comes before `end`; passes the comma or the end."""
        self._blank()
        if self.text[self.at] == ",":
            self.at += 1
            self._blank()
        if self.text[self.at] == end:
            self.at += 1
            return False
        return True

    def _blank(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        assert blank is not None
        self.at = blank.end()

    def _line(self) -> int:
        """The line of `at`, counted from 1."""
        self._newlines += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._newlines + 1
