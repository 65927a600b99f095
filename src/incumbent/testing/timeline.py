"""What happened in a world, as one HTML page: hosts as lanes, leases as bars, faults marked.

    timeline = Timeline("election, seed 17")
    timeline.bar("n1", 3.2, 9.1, "leads, token 4", "held")
    timeline.mark("zk", 5.0, "crash")
    path.write_text(timeline.html(lines=world.lines))

Rule of this file: the page needs nothing but itself, and a run gives the same page each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

__all__ = ["Bar", "Mark", "Style", "Timeline"]

Style = Literal["lease", "held", "fault", "down", "bad"]

_ROW = 15
_LEFT, _TOP = 90, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that lasts, in seconds of world time."""

    lane: str
    start: float
    end: float
    label: str
    style: Style = "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happens at one moment."""

    lane: str
    at: float
    label: str
    style: Style = "fault"


class Timeline:
    """Collects bars and marks. Lanes are drawn in the order in which they are named first."""

    def __init__(self, title: str, *, lanes: Sequence[str] = ()) -> None:
        self.title = title
        self.bars: list[Bar] = []
        self.marks: list[Mark] = []
        self._lanes = dict.fromkeys(lanes)

    def bar(self, lane: str, start: float, end: float, label: str, style: Style = "lease") -> None:
        self._lanes.setdefault(lane)
        self.bars.append(Bar(lane=lane, start=start, end=end, label=label, style=style))

    def mark(self, lane: str, at: float, label: str, style: Style = "fault") -> None:
        self._lanes.setdefault(lane)
        self.marks.append(Mark(lane=lane, at=at, label=label, style=style))

    @property
    def end(self) -> float:
        ends = [b.end for b in self.bars if b.end < math.inf] + [m.at for m in self.marks]
        return max([1.0, *ends])

    def html(self, *, why: str = "", lines: Iterable[tuple[float, str, str]] = ()) -> str:
        """The page. `why` stands above, `lines` (time, who, what) below."""
        scale = max(12.0, 1100 / self.end)  # pixels per second
        width = _LEFT + self.end * scale + 30
        body: list[str] = []
        top = _TOP
        for lane in self._lanes:
            rows = self._rows(lane)
            height = max(2, len(rows)) * (_ROW + 2) + 10
            body.append(
                f'<rect class="lane" x="0" y="{top}" width="{width:.0f}" height="{height - 4}"/>'
                f'<text class="name" x="6" y="{top + 14}">{escape(lane)}</text>'
            )
            for number, row in enumerate(rows):
                y = top + 3 + number * (_ROW + 2)
                body += [self._drawn_bar(bar, y, scale) for bar in row]
            body += [
                self._drawn_mark(mark, top, height - 4, scale)
                for mark in self.marks
                if mark.lane == lane
            ]
            top += height
        grid = [
            f'<line class="grid" x1="{_LEFT + at * scale:.1f}" x2="{_LEFT + at * scale:.1f}" '
            f'y1="16" y2="{top}"/><text class="time" x="{_LEFT + at * scale:.1f}" y="12">{at}</text>'
            for at in range(0, math.ceil(self.end) + 1, 1 if scale > 30 else 5)
        ]
        told = "".join(
            f"<tr><td>{at:.6f}</td><td>{escape(who)}</td><td>{escape(text)}</td></tr>\n"
            for at, who, text in lines
        )
        return _PAGE.format(
            title=escape(self.title),
            why=f"<pre>{escape(why)}</pre>" if why else "",
            width=f"{width:.0f}",
            height=top + 4,
            drawing="\n".join([*grid, *body]),
            told=f"<table>{told}</table>" if told else "",
        )

    def _rows(self, lane: str) -> list[list[Bar]]:
        """Its bars, one below the other where they overlap."""
        rows: list[list[Bar]] = []
        for bar in sorted((b for b in self.bars if b.lane == lane), key=lambda b: b.start):
            row = next((r for r in rows if r[-1].end <= bar.start), None)
            if row is None:
                rows.append([bar])
            else:
                row.append(bar)
        return rows

    def _drawn_bar(self, bar: Bar, y: float, scale: float) -> str:
        end = min(bar.end, self.end)
        tip = f"{bar.label}: {bar.start:.3f} to {end:.3f} s"
        width = max(1.5, (end - bar.start) * scale)
        text = escape(bar.label) if width > 7 * len(bar.label) else ""
        x = _LEFT + bar.start * scale
        return (
            f'<g><title>{escape(tip)}</title><rect class="{bar.style}" x="{x:.1f}" y="{y}" '
            f'width="{width:.1f}" height="{_ROW}"/>'
            f'<text class="label" x="{x + 3:.1f}" y="{y + 11}">{text}</text></g>'
        )

    def _drawn_mark(self, mark: Mark, top: float, height: float, scale: float) -> str:
        x = _LEFT + mark.at * scale
        tip = f"{mark.label}: {mark.at:.6f} s"
        return (
            f'<g><title>{escape(tip)}</title><path class="{mark.style}" '
            f'd="M{x:.1f} {top} v{height} m-4 0 l4 -8 l4 8 z"/></g>'
        )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 13px system-ui, sans-serif; margin: 16px; color: #222; background: #fff; }}
h1 {{ font-size: 17px; }}
pre {{ background: #f6f6f6; padding: 8px; white-space: pre-wrap; }}
.scroll {{ overflow-x: auto; border: 1px solid #ddd; }}
.lane {{ fill: #f6f7f9; }} .grid {{ stroke: #e2e4e8; }}
.name {{ font: bold 12px system-ui; }} .time {{ font: 10px system-ui; fill: #777; }}
.label {{ font: 10px system-ui; fill: #fff; pointer-events: none; }}
rect.lease {{ fill: #6f9fca; }} rect.held {{ fill: #2a6fb0; }} rect.fault {{ fill: #d98a1f; }}
rect.down {{ fill: #888; }} rect.bad {{ fill: #c0262d; }}
path.lease {{ fill: #6f9fca; stroke: #6f9fca; }} path.held {{ fill: #2a6fb0; stroke: #2a6fb0; }} path.fault {{ fill: #d98a1f; stroke: #d98a1f; }}
path.down {{ fill: #888; stroke: #888; }}
path.bad {{ fill: #c0262d; stroke: #c0262d; stroke-width: 2; }}
td {{ font: 11px ui-monospace, monospace; vertical-align: top; padding: 0 8px 0 0; }}
key {{ margin-right: 14px; }} key::before {{ content: "■ "; }}
</style></head><body>
<h1>{title}</h1>
{why}
<p><key style="color:#6f9fca">lease</key><key style="color:#2a6fb0">held, leading, running</key><key style="color:#d98a1f">fault</key>
<key style="color:#888">down, asleep or frozen</key><key style="color:#c0262d">what must not be</key>
seconds of world time; hover for details</p>
<div class="scroll"><svg width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">
{drawing}
</svg></div>
{told}
</body></html>
"""
