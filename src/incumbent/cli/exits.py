"""Exit codes, and what is said when a command fails.

    0 done, yes     1 no     2 usage     3 ensemble unreachable     4 timed out

Rule of this file: an error is one or a few lines on stderr, never a traceback; data is on stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import NoReturn

from incumbent.errors import (
    AuthFailed,
    BarrierTimeout,
    ConnectTimeout,
    FateUnknown,
    IncumbentError,
    LockTimeout,
    NoAuth,
    NotSent,
    NumbersDontFit,
    SessionError,
    SettingMissing,
    SpecError,
    SpecErrors,
    TooLarge,
)

__all__ = [
    "DONE",
    "NO",
    "TIMED_OUT",
    "UNREACHABLE",
    "USAGE",
    "No",
    "Parser",
    "TimedOut",
    "Usage",
    "exit_code",
    "failed",
    "interrupted",
    "say",
    "tell",
]

DONE, NO, USAGE, UNREACHABLE, TIMED_OUT = range(5)


class No(IncumbentError):
    """The answer is no: what was asked for is not so, or may not be done. A whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class Usage(SpecError):
    """A command was called in a way that cannot work. A whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__("", 0, "", sentence)

    def __str__(self) -> str:
        return self.problem


class TimedOut(IncumbentError):
    """What a command waited for did not come in time. A whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class Parser(argparse.ArgumentParser):
    """One line says what is wrong, and where to read on. `usage_code`: with which exit code."""

    usage_code = USAGE

    def error(self, message: str) -> NoReturn:
        say(f"{message}; `{self.prog} --help` shows what there is")
        raise SystemExit(self.usage_code)


_CODES: tuple[tuple[type[IncumbentError] | tuple[type[IncumbentError], ...], int], ...] = (
    ((AuthFailed, TooLarge), NO),
    ((SpecError, SpecErrors, SettingMissing, NumbersDontFit), USAGE),
    ((ConnectTimeout, NotSent, FateUnknown, SessionError), UNREACHABLE),
    ((TimedOut, LockTimeout, BarrierTimeout), TIMED_OUT),
)


_ADMISSION = "; what is shown there is the setting `auth` (docs/security.md)"


def exit_code(error: IncumbentError) -> int:
    """The exit code that an error stands for; 1 where nothing more precise is known."""
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    return NO


def failed(error: IncumbentError, code: int | None = None) -> int:
    """Say it on stderr; the exit code."""
    say(f"{error}{_ADMISSION}" if isinstance(error, (NoAuth, AuthFailed)) else str(error))
    return exit_code(error) if code is None else code


def say(text: str) -> None:
    """For people, on stderr. Nobody may be reading any more: that stops nothing."""
    with suppress(OSError):
        os.write(2, f"incumbent: {text}\n".encode(errors="backslashreplace"))


def tell(text: str) -> None:
    """A success that has nothing for stdout: to somebody who watches, on stderr; not to a script."""
    with suppress(OSError):
        if os.isatty(2):
            say(text)


def interrupted() -> int:
    """Ctrl-C."""
    with suppress(OSError):
        sys.stdout.flush()
    return 130
