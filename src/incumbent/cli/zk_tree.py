"""A znode with all that is below it, read level by level and drawn.

Rule of this file: what vanishes while it is read is not there; what may not be read is shown
with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from incumbent.aio import Zk
from incumbent.cli.znode import as_stat, tree_line
from incumbent.errors import NoNode, Refused
from incumbent.wire import Stat

__all__ = ["Branch", "draw", "read_tree"]

_FLIGHT = 500


@dataclass(slots=True)
class Branch:
    """One znode. `problem`: why nothing more is known of it."""

    path: str
    stat: Stat | None = None
    problem: str = ""
    below: list[Branch] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path[self.path.rindex("/") + 1 :] or "/"

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        known = {"stat": as_stat(self.stat)} if self.stat is not None else {}
        why = {"problem": self.problem} if self.problem else {}
        below = [each.as_object() for each in self.below]
        return {"path": self.path, **known, **why, "children": below}


async def read_tree(zk: Zk, path: str, depth: int | None = None) -> Branch:
    """`depth`: levels below `path`, None for all. Raises `NoNode` if `path` itself is missing."""
    top = Branch(path)
    level = [top]
    left = depth
    while level:
        found: list[Branch] = []
        for start in range(0, len(level), _FLIGHT):
            part = level[start : start + _FLIGHT]
            results = await asyncio.gather(*(_look(zk, each, left != 0) for each in part))
            for branch, is_there in zip(part, results, strict=True):
                if is_there:
                    found += branch.below
        level = found
        left = None if left is None else left - 1
    _prune(top)
    return top


def draw(top: Branch) -> Iterator[str]:
    """The lines of it."""
    yield _line(top, top.path)
    yield from _draw_below(top, "")


def _draw_below(branch: Branch, before: str) -> Iterator[str]:
    for each in branch.below:
        is_last = each is branch.below[-1]
        yield f"{before}{'└── ' if is_last else '├── '}{_line(each, each.name)}"
        yield from _draw_below(each, f"{before}{'    ' if is_last else '│   '}")


def _line(branch: Branch, name: str) -> str:
    if branch.stat is None:
        return f"{name}  ({branch.problem})"
    return tree_line(name, branch.stat)


async def _look(zk: Zk, branch: Branch, deeper: bool) -> bool:
    try:
        names, branch.stat = await zk.children_and_stat(branch.path)
    except NoNode:
        if branch.path != "/" and branch.stat is None and not branch.below:
            branch.problem = "gone"
        return False
    except Refused as error:
        branch.problem = error.says
        return False
    if deeper:
        branch.below = [Branch(f"{branch.path.rstrip('/')}/{name}") for name in names]
    return True


def _prune(top: Branch) -> None:
    """Take out what had vanished."""
    if top.problem == "gone":
        raise NoNode(top.path)
    waiting = [top]
    while waiting:
        branch = waiting.pop()
        branch.below = [each for each in branch.below if each.problem != "gone"]
        waiting += branch.below
