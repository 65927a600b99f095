"""What the demo says: lines that stay, and under them, in a terminal, the table as it is now.

Rule of this file: the same words in a terminal and in a pipe; only colour and the moving table
differ. Whoever reads may go: then `Unheard` ends the demo, and nothing more is said.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from incumbent.cli.demo.table import Cell, Now, plain_table, table

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

__all__ = ["Unheard", "Voice"]

_INDENT = "     "


class Unheard(Exception):
    """Nobody reads our stdout any more."""


class Voice:
    """A context manager. `caption()` gives the line under the moving table, "" for none."""

    def __init__(self) -> None:
        self.caption: Callable[[], str] = str
        self._is_gone = False
        self._live: Live | None = None
        self._now = Now(seats={})

    def __enter__(self) -> Voice:
        if sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "", None):
            from rich.console import Console
            from rich.live import Live

            console = Console(highlight=False, soft_wrap=False)
            self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # ── lines

    def line(self, *parts: Cell | str) -> None:
        """One line, of parts with or without a style."""
        cells = [(part, "") if isinstance(part, str) else part for part in parts]
        if self._live is not None:
            self._live.console.print(_text(cells), soft_wrap=True)  # what is copied stays whole
            return
        self._write("".join(text for text, _ in cells).rstrip() + "\n")

    def act(self, number: int, of: int, title: str, *sentences: str) -> None:
        """The head of an act, and what will happen."""
        self.line()
        self.line((f"{number}/{of}  ", "bold cyan"), (title, "bold"))
        for sentence in sentences:
            self.say(sentence)

    def say(self, sentence: str) -> None:
        self.line(_INDENT, sentence)

    def receipt(self, what: str, move: str, down: float, outcome: str, detail: str = "") -> None:
        """One line for what happened. `down`: seconds without the program."""
        self.line(
            _INDENT,
            ("receipt  ", "green"),
            (what.ljust(17), ""),
            (move.ljust(8), ""),
            (f"{down * 1000:6,.0f} ms down", "bold"),
            f"  {outcome}",
        )
        if detail:
            self.line(_INDENT, (f"         {detail}", "dim"))

    # ── the table

    def show(self, now: Now) -> None:
        """The table that moves, in a terminal."""
        self._now = now
        if self._live is not None:
            self._live.update(self._moving(), refresh=True)

    def print_table(self) -> None:
        """The table as it is now, in a pipe: there it doesn't move."""
        if self._live is None:
            self.line()
            for line in plain_table(self._now):
                self.say(line)

    def _moving(self) -> Text:
        lines = [_text([(_INDENT, ""), *line]) for line in table(self._now)]
        below = _text([(_INDENT, ""), (self.caption(), "yellow")])
        return _joined([_text([]), *(lines if self._now.seats else ()), below])

    def _write(self, text: str) -> None:
        if self._is_gone:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self._is_gone = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered goes nowhere
            raise Unheard from None


def _text(cells: Sequence[Cell]) -> Text:
    from rich.text import Text

    return Text.assemble(*cells)


def _joined(lines: Sequence[Text]) -> Text:
    from rich.text import Text

    return Text("\n").join(lines)
