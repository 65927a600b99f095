"""What a failing seed leaves behind: its schedule in the error, and one page with the timeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from incumbent.testing.disks import SimDisk
from incumbent.testing.faults import Fault, describe
from incumbent.testing.timeline import Timeline
from incumbent.testing.world import World

__all__ = ["explain", "extra", "timeline_of"]

_FOLDER = Path(__file__).parents[2] / "build" / "timelines"
_DOWN = ("crash", "suspend", "freeze", "stall", "kill")


def extra(disk: SimDisk | None) -> float:
    """Seconds that a write takes more than usual, at most."""
    return disk.slow_by if disk is not None else 0.0


def timeline_of(world: World, title: str) -> Timeline:
    """Hosts and their faults; who made the world adds what was believed."""
    timeline = Timeline(title, lanes=sorted(world.hosts))
    for at, lane, label, lasts in world.marks:
        style = "down" if label.startswith(_DOWN) else "fault"
        if lasts > 0:
            timeline.bar(lane, at, at + lasts, label, style)
        else:
            timeline.mark(lane, at, label, style)
    _add_servers(timeline, world)
    for at, who, text in world.lines:
        if who == "world" and text == "heal all":
            timeline.mark("world", at, "healed", "held")
        if "problem" in text or text.startswith("overlap"):
            timeline.mark("world", at, text, "bad")
    return timeline


def _add_servers(timeline: Timeline, world: World) -> None:
    """Who led the ensemble, and whose process was killed."""
    leads: dict[str, tuple[float, str]] = {}
    for at, who, text in world.lines:
        name = (text if who == "world" else who).partition("/server")[0]
        if who == "world" and text.endswith(("/server killed", " crashes")):
            name = name.partition(" ")[0]
            timeline.mark(name, at, text, "down")
        elif '"leading ' in text:
            leads[name] = at, text.split('"')[3]
            continue
        elif '"no longer leading' not in text:
            continue
        if name in leads:
            since, label = leads.pop(name)
            timeline.bar(name, since, at, label, "held")
    for name, (since, label) in leads.items():
        timeline.bar(name, since, world.now, label, "held")


def explain(
    error: BaseException, name: str, world: World, faults: Sequence[Fault], timeline: Timeline
) -> None:
    """Add to the error what one needs to look into it. TIMELINES names the folder, 0 is none."""
    error.add_note(describe(world.seed, faults))
    wanted = os.environ.get("TIMELINES", str(_FOLDER))
    if wanted == "0":
        return
    folder = Path(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}-{world.seed}.html"
    told = [line for line in world.lines if line[1] != "net"]
    page.write_text(timeline.html(why=f"{error}\n\n{describe(world.seed, faults)}", lines=told))
    where = page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page
    error.add_note(f"timeline: {where}")
    print(f"timeline: {where}", file=sys.stderr)
