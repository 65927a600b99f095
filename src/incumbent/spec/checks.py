"""What each key of a component may be, in words for people.

Rule of this file: one check for each key of `Spec`. A check takes the value as TOML gives it and
returns it as `Spec` wants it, or calls `wrong(what was expected, *path below the key)` for each
thing that is wrong and returns anything.
"""

from __future__ import annotations

import math
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from typing import Any, Protocol, get_args

from incumbent.masking import is_secret, masked_words
from incumbent.settings import name_problem
from incumbent.spec.config import read_on_config, read_uses
from incumbent.spec.health import HOOKS, read_check, read_hook
from incumbent.spec.limits import check_limits
from incumbent.spec.spec import LOCAL_URL, MOST_COPIES, OnFailure
from incumbent.toml_file import did_you_mean, kind

__all__ = ["CHECKS", "REQUIRED", "Wrong"]


class Wrong(Protocol):
    """Records one problem at a key path below the key being checked; goes on."""

    def __call__(self, text: str, *below: str | int) -> None: ...


Check = Callable[[Any, Wrong], Any]

REQUIRED = {
    "command": 'no command: expected `command = ["program", "argument", …]` or a string',
}

_RESERVED = (
    "INCUMBENT_COMPONENT",
    "INCUMBENT_DEADLINE_FILE",
    "INCUMBENT_EPOCH",
    "INCUMBENT_HOOK",
    "INCUMBENT_NODE",
    "INCUMBENT_OWNER",
    "INCUMBENT_SEAT",
    "INCUMBENT_WHY",
    "INCUMBENT_ZOOKEEPER",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
)
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1"})
_EXPECTED_COMMAND = 'expected a list of strings, or one string, like "redis-server --port 6379"'


def _command(value: Any, wrong: Wrong) -> tuple[str, ...]:
    if isinstance(value, str):
        return _split(value, wrong)
    if not isinstance(value, list):
        wrong(f"{_EXPECTED_COMMAND}; got {kind(value)}")
        return ()
    if not value:
        wrong("empty: expected the program to run and its arguments")
    for position, word in enumerate(value):
        if not isinstance(word, str):
            wrong(f"expected a string, got {kind(word)}; write it in quotes", position)
        elif "\0" in word:
            wrong("a null character cannot be part of an argument", position)
    if value and value[0] == "":
        wrong("empty: expected the program to run", 0)
    return tuple(value)


def _split(text: str, wrong: Wrong) -> tuple[str, ...]:
    """Words as a shell would have them: quotes and backslashes only; no shell ever runs."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        what = "a quote is not closed" if "quotation" in str(error) else "it ends in a backslash"
        shown = " ".join(masked_words(text.split()))
        wrong(f"{what} in {shown!r}; a list of strings needs no quoting")
        return ()
    if not words or not words[0]:
        wrong("empty: expected the program to run and its arguments")
    if "\0" in text:
        wrong("a null character cannot be part of an argument")
    shell = [word for word in _raw_words(text) if word in _SHELL_WORDS or word[:2] == "$("]
    if shell:
        wrong(
            f"no shell runs this, and `{shell[0]}` would be an argument; expected "
            '`command = ["sh", "-c", "…"]` for a shell, a list of strings to mean it literally'
        )
    return tuple(words)


def _raw_words(text: str) -> list[str]:
    """The words with their quotes, so that a quoted `|` is not mistaken for a pipe."""
    try:
        return shlex.split(text, posix=False)
    except ValueError:
        return []


def _env(value: Any, wrong: Wrong) -> dict[str, str]:
    if not isinstance(value, dict):
        wrong(f'expected a table of strings, like {{ PORT = "8080" }}; got {kind(value)}')
        return {}
    for name, text in value.items():
        if not name or "=" in name or "\0" in name:
            wrong("no name for a variable: expected one without `=`", name)
        elif name in _RESERVED:
            wrong("this variable is set by Incumbent; expected another name", name)
        if isinstance(text, (bool, int, float)):
            literal = str(text).lower() if isinstance(text, bool) else text
            shown = "it in quotes" if is_secret(name) else f'"{literal}"'
            wrong(f"expected a string, got {kind(text)}; write {shown}", name)
        elif not isinstance(text, str):
            wrong(f"expected a string, got {kind(text)}", name)
        elif "\0" in text:
            wrong("a null character cannot be part of a variable", name)
    return dict(sorted(value.items()))


def _path(value: Any, wrong: Wrong, *below: int) -> str:
    """A path; relative ones are the business of the file (see `file`)."""
    if not isinstance(value, str):
        wrong(f"expected a path as a string, got {kind(value)}", *below)
        return ""
    if not value or "\0" in value:
        wrong("expected a path, got an empty string" if not value else "expected a path", *below)
    elif value.startswith("~"):
        wrong(f"`~` is not expanded: expected a path from `/`, got {value!r}", *below)
    return value


def _stop_signal(value: Any, wrong: Wrong) -> int:
    valid = {int(number) for number in signal.valid_signals()}
    if isinstance(value, str):
        name = value.upper().removeprefix("SIG")
        names = {s.name.removeprefix("SIG"): int(s) for s in signal.Signals}
        if name in names:
            value = names[name]
        else:
            hint = did_you_mean(f"SIG{name}", [f"SIG{known}" for known in names])
            wrong(f'no signal {value!r}: expected a name like "SIGTERM" or a number{hint}')
            return 0
    if isinstance(value, bool) or not isinstance(value, int):
        wrong(f'expected a signal, like "SIGTERM" or 15; got {kind(value)}')
    elif value not in valid:
        wrong(f"no signal has the number {value}: expected 1 to {max(valid)}")
    elif value in (signal.SIGSTOP, signal.SIGCONT):
        wrong(f"{signal.Signals(value).name} ends no program: expected another signal")
    return int(value) if isinstance(value, int) else 0


def _stop_http(value: Any, wrong: Wrong) -> Any:
    if not isinstance(value, str) or not re.fullmatch(LOCAL_URL, value):
        got = _literal(value) if isinstance(value, str) else kind(value)
        wrong(f'expected a URL of this machine, like "http://127.0.0.1:8080/quit"; got {got}')
    return value


def _stop_grace(value: Any, wrong: Wrong) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = '; write 10, not "10s"' if isinstance(value, str) else ""
        wrong(f"expected a number of seconds, got {kind(value)}{hint}")
        return 0.0
    if not (math.isfinite(value) and value >= 0):
        wrong(f"expected a number of seconds from 0, got {value}")
    return float(value)


def _copies(value: Any, wrong: Wrong) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        wrong(f"expected a whole number from 1, got {kind(value)}")
    elif value < 1:
        wrong(f"expected a whole number from 1, got {value}; `incumbent remove` ends a component")
    elif value > MOST_COPIES:
        wrong(f"expected at most {MOST_COPIES}, got {value}")
    return value if isinstance(value, int) else 1


def _max_parallel(value: Any, wrong: Wrong) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        wrong(f"expected a whole number from 1, got {kind(value)}")
    elif value < 1:
        wrong(f"expected a whole number from 1, got {value}: how many copies are down at a time")
    return value if isinstance(value, int) else 1


def _auto_revert(value: Any, wrong: Wrong) -> bool:
    if not isinstance(value, bool):
        wrong(f"expected true or false, got {_literal(value)}")
    return bool(value)


def _requires(value: Any, wrong: Wrong) -> tuple[str, ...]:
    if not isinstance(value, list):
        wrong(f'expected a list of absolute paths, like ["/dev/nvme0n1"]; got {kind(value)}')
        return ()
    for position, path in enumerate(value):
        if not _path(path, wrong, position) or path.startswith("~"):
            continue
        if not path.startswith("/"):
            wrong(f"expected an absolute path, got {path!r}: nodes look it up", position)
    return tuple(path for path in value if isinstance(path, str))


def _nodes(value: Any, wrong: Wrong) -> tuple[str, ...]:
    if not isinstance(value, list):
        wrong(f'expected a list of node names, like ["n1", "n2"]; got {kind(value)}')
        return ()
    if not value:
        wrong("empty, so no node may run it: expected names; without `nodes` every node may")
    for position, name in enumerate(value):
        if not isinstance(name, str):
            wrong(f"expected a node's name as a string, got {kind(name)}", position)
        elif problem := name_problem(name):
            wrong(f"{name!r} is no node's name: {problem}", position)
    return tuple(sorted({name for name in value if isinstance(name, str)}))


def _isolation(value: Any, wrong: Wrong) -> Any:
    if value not in ("sealed", "contained", "swept"):
        wrong(
            f'expected "sealed", "contained" or "swept", got {_literal(value)}; '
            "without `isolation` a node does the strongest that it can"
        )
    return value


def _on_unclean(value: Any, wrong: Wrong) -> Any:
    if value not in ("wait", "go"):
        wrong(f'expected "wait" or "go", got {_literal(value)}')
    return value


def _labels(value: Any, wrong: Wrong) -> dict[str, str]:
    if not isinstance(value, dict):
        wrong(f'expected a table of strings, like {{ team = "search" }}; got {kind(value)}')
        return {}
    for name, text in value.items():
        if problem := name_problem(name):
            wrong(f"{name!r} is no label's name: {problem}", name)
        if not isinstance(text, str):
            wrong(f"expected a string, got {kind(text)}", name)
    return dict(sorted(value.items()))


def _user(value: Any, wrong: Wrong) -> Any:
    if not isinstance(value, str):
        wrong(f'expected a user\'s name, like "www-data"; got {kind(value)}')
    elif not re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,31}\$?", value):
        wrong(f"{_literal(value)} is no user's name: expected one of /etc/passwd")
    return value


def _umask(value: Any, wrong: Wrong) -> int:
    """In octal: 0o027 as a number of TOML, or "027"."""
    if isinstance(value, str) and re.fullmatch(r"0?o?[0-7]{1,3}", value):
        return int(value.removeprefix("0").removeprefix("o") or "0", 8)
    if isinstance(value, bool) or not isinstance(value, int):
        got = _literal(value) if isinstance(value, str) else kind(value)
        wrong(f'expected three octal digits, like "027"; got {got}')
        return 0
    if not 0 <= value <= 0o777:
        wrong(f'expected at most 0o777, got {value}; octal is written "027" or 0o027')
    return value


def _on_failure(value: Any, wrong: Wrong) -> Any:
    known = get_args(OnFailure)
    if value not in known:
        *most, last = (f'"{each}"' for each in known)
        wrong(f"expected {', '.join(most)} or {last}; got {_literal(value)}")
    return value


def _max_failures(value: Any, wrong: Wrong) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        wrong(f"expected a whole number from 1, got {kind(value)}")
    elif value < 1:
        wrong(f'expected a whole number from 1, got {value}; on_failure = "backoff" never gives up')
    return value if isinstance(value, int) else 1


def _seconds(value: Any, wrong: Wrong) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = '; write 10, not "10s"' if isinstance(value, str) else ""
        wrong(f"expected a number of seconds, got {kind(value)}{hint}")
        return 1.0
    if not (math.isfinite(value) and value > 0):
        wrong(f"expected a number of seconds above 0, got {value}")
    return float(value)


def _exit_codes(value: Any, wrong: Wrong) -> tuple[int, ...]:
    if not isinstance(value, list):
        wrong(f"expected a list of exit codes, like [0, 3]; got {kind(value)}")
        return ()
    for position, code in enumerate(value):
        if isinstance(code, bool) or not isinstance(code, int):
            wrong(f"expected an exit code, 0 to 255; got {kind(code)}", position)
        elif not 0 <= code <= 255:
            wrong(f"expected an exit code, 0 to 255; got {code}", position)
    return tuple(sorted({code for code in value if isinstance(code, int)}))


def _literal(value: Any) -> str:
    short = isinstance(value, str) and re.fullmatch(r"[ -~]{0,40}", value)
    return f'"{value}"' if short else kind(value)


CHECKS: Mapping[str, Check] = {
    "command": _command,
    "env": _env,
    "env_file": _path,
    "cwd": _path,
    "stop_signal": _stop_signal,
    "stop_grace": _stop_grace,
    "copies": _copies,
    "requires": _requires,
    "nodes": _nodes,
    "isolation": _isolation,
    "on_unclean": _on_unclean,
    "labels": _labels,
    "user": _user,
    "umask": _umask,
    "limits": check_limits,
    "stop_http": _stop_http,
    "on_failure": _on_failure,
    "max_failures": _max_failures,
    "window": _seconds,
    "backoff": _seconds,
    "backoff_most": _seconds,
    "success_exit_codes": _exit_codes,
    "ready": lambda value, wrong: read_check(value, wrong, _command, is_live=False),
    "live": lambda value, wrong: read_check(value, wrong, _command, is_live=True),
    "config": lambda value, wrong: read_uses(value, wrong, _RESERVED),
    "on_config": read_on_config,
    "debounce": _stop_grace,
    "debounce_max": _stop_grace,
    "max_parallel": _max_parallel,
    "auto_revert": _auto_revert,
    **dict.fromkeys(HOOKS, lambda value, wrong: read_hook(value, wrong, _command)),
}
