"""How a component's health is told, and what is run around its starts and stops.

    [component.web.ready]            [component.web.live]            [component.web]
    http = "http://127.0.0.1/up"     tcp = 8080                      before_start = "./migrate"
    within = 60                      interval = 5                    on_fail = { command = "./tell", limit = 5 }

`ready`: is it up? It is asked until the first yes, and must be within `within` seconds. `live`:
does it still work? It is asked from then on, and `failures` noes in a row end the instance.

Rule of this file: a `Check` or `Hook` is complete: every default is in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from incumbent.toml_file import did_you_mean, kind

__all__ = ["HOOKS", "Check", "Hook", "read_check", "read_hook"]

HOOKS = ("before_start", "after_start", "before_stop", "after_stop", "on_fail")
HOOK_LIMIT = 30.0
"""Seconds that a hook may take unless it says otherwise."""
READY = {"interval": 1.0, "timeout": 1.0, "within": 60.0}
LIVE = {"interval": 5.0, "timeout": 2.0}
FAILURES = 3
_WAYS = ("http", "tcp", "command", "notify", "fd")

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Command = Callable[..., tuple[str, ...]]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One way to ask a program.

    way       how: http, tcp and command ask; notify and fd wait for the program's own word
    target    http: the URL; tcp: "host:port"; fd: the descriptor's number
    command   of the way `command`
    interval  seconds from one time to the next; live by notify: from one word to the next, at most
    timeout   seconds that one time may take
    failures  live: so many noes in a row end the instance
    within    ready: seconds from the start
    """

    way: Literal["http", "tcp", "command", "notify", "fd"]
    target: str = ""
    command: tuple[str, ...] = ()
    interval: Seconds
    timeout: Seconds
    failures: Annotated[int, msgspec.Meta(ge=1)] = 1
    within: Seconds = READY["within"]

    @property
    def asks(self) -> bool:
        return self.way in ("http", "tcp", "command")

    @property
    def budget(self) -> float:
        """Seconds within which a program that hangs is noticed, by `live`."""
        return self.interval * self.failures + self.timeout if self.asks else self.interval


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """What is run at a turn of an instance's life; killed after `limit` seconds."""

    command: tuple[str, ...]
    limit: Seconds = HOOK_LIMIT


def read_check(
    value: Any, wrong: Callable[..., None], command: Command, *, is_live: bool
) -> Check | None:
    """A `ready` or `live` table. `command` checks a command as the component's own is."""
    name = "live" if is_live else "ready"
    if not isinstance(value, dict):
        wrong(f"expected a table [component.NAME.{name}], like {{ tcp = 8080 }}; got {kind(value)}")
        return None
    ways = _WAYS[:4] if is_live else _WAYS
    found = [way for way in ways if way in value]
    if len(found) != 1:
        what = " and ".join(f"`{way}`" for way in found) or "none"
        wrong(f"expected exactly one of {', '.join(ways)}; got {what}")
        return None
    way = found[0]
    asks = way in ("http", "tcp", "command")
    keys = [way, *(["timeout"] if asks else [])]
    keys += ["interval"] if asks or is_live else []
    keys += (["failures"] if asks else []) if is_live else ["within"]
    for key in value:
        if key not in keys:
            hint = did_you_mean(key, keys) or f"; expected one of {', '.join(keys)}"
            wrong(f"unknown key for `{way}`{hint}", key)
    numbers = dict(LIVE if is_live else READY)
    for key in ("interval", "timeout", "within"):
        if key in value and key in keys:
            numbers[key] = _seconds(value[key], wrong, key)
    if asks and numbers["timeout"] > numbers["interval"]:
        wrong(
            f"timeout {numbers['timeout']:g} s is longer than interval {numbers['interval']:g} s: "
            "expected at most as long, so that a hang is noticed within interval times failures",
        )
    failures = value.get("failures", FAILURES if is_live and asks else 1)
    if isinstance(failures, bool) or not isinstance(failures, int) or failures < 1:
        wrong(f"expected a whole number from 1, got {_shown(failures)}", "failures")
        failures = 1
    target, words = _target(way, value[way], wrong, command)
    return Check(way=way, target=target, command=words, failures=failures, **numbers)  # type: ignore[arg-type]


def read_hook(value: Any, wrong: Callable[..., None], command: Command) -> Hook | None:
    """A command, or a table with `command` and `limit`."""
    if not isinstance(value, dict):
        return Hook(command=command(value, wrong))
    for key in value:
        if key not in ("command", "limit"):
            hint = did_you_mean(key, ("command", "limit")) or "; expected command, limit"
            wrong(f"unknown key{hint}", key)
    if "command" not in value:
        wrong('no command: expected `{ command = "…", limit = 30 }`, or the command alone')
        return None
    limit = _seconds(value.get("limit", HOOK_LIMIT), wrong, "limit")
    return Hook(command=command(value["command"], _below(wrong, "command")), limit=limit)


def _target(
    way: str, value: Any, wrong: Callable[..., None], command: Command
) -> tuple[str, tuple[str, ...]]:
    if way == "command":
        return "", command(value, _below(wrong, way))
    if way == "tcp":
        return _address(value, wrong), ()
    if way == "http":
        return _url(value, wrong), ()
    if way == "notify":
        if value is not True:
            wrong("expected true: the program says it as systemd's sd_notify does", way)
        return "", ()
    if isinstance(value, bool) or not isinstance(value, int) or not 3 <= value < 1024:
        wrong(f"expected the number of a descriptor from 3 to 1023, got {_shown(value)}", way)
    return str(value), ()


def _address(value: Any, wrong: Callable[..., None]) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"127.0.0.1:{value}"
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        wrong(f'expected a port of this node, or "host:port"; got {_shown(value)}', "tcp")
        return ""
    return f"{host.strip('[]')}:{port}"


def _url(value: Any, wrong: Callable[..., None]) -> str:
    expected = 'expected a URL like "http://127.0.0.1:8080/health"'
    if not isinstance(value, str):
        wrong(f"{expected}, got {kind(value)}", "http")
        return ""
    try:
        url = urlsplit(value)
        is_right = url.scheme == "http" and bool(url.hostname) and (url.port or 80) > 0
    except ValueError:
        is_right = False
    if value.startswith("https:"):
        wrong("https is not asked: expected http://, or a `command` such as curl", "http")
    elif not is_right or re.search(r"[\s\x00-\x1f\x7f-\uffff]", value):
        wrong(f"{expected}, got {_shown(value)}", "http")
    return value


def _seconds(value: Any, wrong: Callable[..., None], key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = '; write 10, not "10s"' if isinstance(value, str) else ""
        wrong(f"expected a number of seconds, got {kind(value)}{hint}", key)
    elif not (math.isfinite(value) and 0 < value <= 86400):
        wrong(f"expected seconds, more than 0 and at most 86400; got {value}", key)
    else:
        return float(value)
    return 1.0


def _below(wrong: Callable[..., None], key: str) -> Callable[..., None]:
    return lambda text, *below: wrong(text, key, *below)


def _shown(value: Any) -> str:
    is_short = isinstance(value, (str, int, float)) and len(str(value)) <= 60
    return repr(value) if is_short and not isinstance(value, bool) else kind(value)
