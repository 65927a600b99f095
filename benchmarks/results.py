"""Figures: what was measured, beside what, and where; as a table and as RESULTS.md.

Rule of this file: a figure is its samples. What is shown (median, spread, ratio) is computed
here and nowhere else.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

__all__ = ["Figure", "Outcome", "block", "document", "in_columns", "machine", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The samples of one thing measured."""

    who: str
    samples: Sequence[float]
    unit: str = "ms"
    goal: float | None = None
    """Ours is to have a smaller median."""
    peer: bool = False
    """Somebody else's, to be set against the last of ours before it."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One question's figures, and remarks on them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    """A table of another shape, the head first."""
    remarks: list[str] = field(default_factory=list)


_MARK = re.compile(r"^<!-- (\w+) -->$", re.MULTILINE)
_PREFACE = """\
# Speed

Each block is written by `python -m benchmarks NAME --write`; `make bench` prints the same.
"""
_HEAD = ("", "median", "min", "max", "n", "goal", "ours is")


def table(outcome: Outcome) -> list[tuple[str, ...]]:
    """Rows of text, the head first."""
    rows: list[tuple[str, ...]] = [_HEAD]
    ours = outcome.figures[0]
    for figure in outcome.figures:
        ours = ours if figure.peer else figure
        goal = ""
        if figure.goal is not None:
            verdict = "met" if figure.median < figure.goal else "MISSED"
            goal = f"< {figure.goal:g} {figure.unit}: {verdict}"
        ratio = ""
        if figure.peer:
            ratio = f"{figure.median / ours.median:.1f} times smaller"
            if figure.median < ours.median:
                ratio = f"{ours.median / figure.median:.1f} times larger"
        rows.append(
            (
                figure.who,
                f"{_short(figure.median)} {figure.unit}",
                _short(min(figure.samples)),
                _short(max(figure.samples)),
                str(len(figure.samples)),
                goal,
                ratio,
            )
        )
    return rows


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """For a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 or i > 4 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def block(outcome: Outcome, facts: Sequence[tuple[str, str]]) -> str:
    """The outcome as a part of RESULTS.md, with what it depends on."""
    measured = "; ".join(f"{key} {value}" for key, value in facts)
    return "\n".join([*_section(outcome), f"- measured on: {measured}"])


def document(before: str, blocks: Mapping[str, str], order: Sequence[str]) -> str:
    """RESULTS.md as it was `before`, these questions' blocks in place of their old ones. Those of
    all other questions stay as they are."""
    _, *parts = _MARK.split(before)
    kept = dict(zip(parts[::2], (text.strip("\n") for text in parts[1::2]), strict=True))
    kept |= blocks
    names = [name for name in order if name in kept] + [name for name in kept if name not in order]
    sections = [f"<!-- {name} -->\n\n{kept[name]}\n" for name in names]
    return "\n".join([_PREFACE, *sections])


def _section(outcome: Outcome) -> list[str]:
    parts = [f"## {outcome.title}", ""]
    if outcome.rows:
        head, *others = outcome.rows
        rule = f"|---{'|--:' * (len(head) - 1)}|"
        parts += [_markdown(head), rule, *map(_markdown, others), ""]
    if outcome.figures:
        head, *others = table(outcome)
        parts += [_markdown(head), "|---|--:|--:|--:|--:|---|---|", *map(_markdown, others), ""]
    return [*parts, *(f"- {remark}" for remark in outcome.remarks)]


def machine() -> list[tuple[str, str]]:
    """What the figures depend on; nothing that names this machine."""
    return [
        ("cpu", f"{_cpu()}, {os.cpu_count()} cores"),
        ("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"),
        ("kernel", platform.release()),
        (
            "Python",
            f"{platform.python_version()}, kazoo {_version('kazoo')}, uvloop {_version('uvloop')}",
        ),
        ("Java", _java()),
        ("disk", f"fdatasync of 4 KiB takes {_disk():.2f} ms (median)"),
        ("scheduling", _scheduling()),
        ("commit", _commit()),
    ]


def _markdown(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _short(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _java() -> str:
    try:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return "absent"
    return said.stderr.split('"')[1] if '"' in said.stderr else "unknown"


def _disk() -> float:
    """Milliseconds, where the servers of these benchmarks keep their data."""
    took = []
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            at = time.monotonic()
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - at) * 1000)
            time.sleep(0.01)
    return statistics.median(took)


def _scheduling() -> str:
    """Ours, which every process measured here inherits: servers, peers and ourselves."""
    names = {os.SCHED_RR: "real time, round robin (chrt -r)", os.SCHED_FIFO: "real time (chrt -f)"}
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    ordinary = f"nice {nice}" if nice else "ordinary"
    return names.get(os.sched_getscheduler(0), ordinary) + ", for everything measured"


def _commit() -> str:
    here = Path(__file__).parent
    asked = ["git", "-C", str(here), "log", "-1", "--format=%h of %cs"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    changed = ["git", "-C", str(here), "status", "--porcelain", "--", "../src"]
    dirty = subprocess.run(changed, capture_output=True, text=True, check=False).stdout.strip()
    return (said or "unknown") + (" and uncommitted changes" if dirty else "")
