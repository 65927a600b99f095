"""The `limits` of a component: what each is called, how it is written, and what enforces it.

Some are the kernel's rlimits, which hold for each process alone and on every machine; some are
those of a cgroup, which hold for the whole tree, on machines that have one for it.

Rule of this file: one line of `LIMITS` for each limit; nothing else knows their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from incumbent.toml_file import did_you_mean, kind

__all__ = ["LIMITS", "UNLIMITED", "Limit", "cgroup_files", "check_limits", "parse_size", "rlimits"]

UNLIMITED = -1
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_PERIOD = 100_000  # microseconds, of cpu.max
_SMALLEST_CPU = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """`rlimit`: the kernel's name of it; or `file`, in a cgroup. `least`: no less is allowed."""

    kind: Literal["count", "size", "cores"]
    rlimit: str = ""
    file: str = ""
    least: float = 0


LIMITS: Mapping[str, Limit] = {
    "address_space": Limit(kind="size", rlimit="RLIMIT_AS", least=16 << 20),
    "core": Limit(kind="size", rlimit="RLIMIT_CORE"),
    "cpu": Limit(kind="cores", file="cpu.max", least=_SMALLEST_CPU),
    "fsize": Limit(kind="size", rlimit="RLIMIT_FSIZE"),
    "memlock": Limit(kind="size", rlimit="RLIMIT_MEMLOCK"),
    "memory": Limit(kind="size", file="memory.max", least=16 << 20),
    "nofile": Limit(kind="count", rlimit="RLIMIT_NOFILE", least=8),
    "nproc": Limit(kind="count", rlimit="RLIMIT_NPROC", least=1),
    "pids": Limit(kind="count", file="pids.max", least=1),
    "stack": Limit(kind="size", rlimit="RLIMIT_STACK", least=64 << 10),
}
"""In alphabetical order, as a spec has them."""


def parse_size(text: str) -> int | None:
    """Bytes of "512M" (K, M, G, T: powers of 1024); None if it is none."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].upper()] if match else None


def rlimits(limits: Mapping[str, float]) -> dict[str, int]:
    """What the program's process sets for itself: name of the rlimit → value, -1 for none."""
    return {LIMITS[key].rlimit: int(limits[key]) for key in limits if LIMITS[key].rlimit}


def cgroup_files(limits: Mapping[str, float]) -> dict[str, str]:
    """What is written into its cgroup: file → text."""
    return {LIMITS[key].file: _text(key, limits[key]) for key in limits if LIMITS[key].file}


def check_limits(value: Any, wrong: Callable[..., None]) -> dict[str, int | float]:
    """What a file says, as a spec has it; `wrong(what was expected, name)` for what is wrong."""
    if not isinstance(value, dict):
        wrong(f'expected a table, like {{ nofile = 4096, memory = "512M" }}; got {kind(value)}')
        return {}
    for name in value:
        if name not in LIMITS:
            hint = did_you_mean(name, LIMITS) or f"; expected one of {', '.join(LIMITS)}"
            wrong(f"unknown limit{hint}", name)
    known = sorted(value.keys() & LIMITS.keys())
    return {name: _limit(LIMITS[name], value[name], wrong, name) for name in known}


def _limit(limit: Limit, value: Any, wrong: Callable[..., None], name: str) -> float:
    if value == "unlimited":
        return UNLIMITED
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if limit.kind == "cores":
        if not is_number or not math.isfinite(value):
            wrong(f'expected a number of cores, like 1.5, or "unlimited"; got {_got(value)}', name)
            return 1.0
        found = float(value)
    elif limit.kind == "size" and isinstance(value, str):
        size = parse_size(value)
        if size is None:
            wrong(f'expected a size, like "512M" or "2G", or "unlimited"; got {_got(value)}', name)
            return limit.least
        found = float(size)
    elif isinstance(value, int) and is_number:
        found = float(value)
    else:
        like = '"512M"' if limit.kind == "size" else "4096"
        what = "a size" if limit.kind == "size" else "a whole number"
        wrong(f'expected {what}, like {like}, or "unlimited"; got {_got(value)}', name)
        return limit.least
    if found < limit.least:
        unit = " bytes" if limit.kind == "size" else ""
        wrong(f"expected at least {limit.least:.12g}{unit}, got {found:.12g}", name)
    return found if limit.kind == "cores" else int(found)


def _got(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) and len(value) < 40 else kind(value)


def _text(key: str, value: float) -> str:
    if value == UNLIMITED:
        return "max"
    if LIMITS[key].kind == "cores":
        return f"{round(value * _PERIOD)} {_PERIOD}"
    return str(int(value) + (key == "pids"))  # the tree's first process is ours
