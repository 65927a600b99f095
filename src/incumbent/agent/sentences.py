"""Sentences about what happened to a seat: how it ended, how it changed nodes.

Rule of this file: facts in, one line out; nothing is decided here.
"""

from __future__ import annotations

import time

from incumbent.agent.tree import Desired, Observed
from incumbent.guardian import messages as m
from incumbent.launch import went_background
from incumbent.spec import Spec

__all__ = ["REMOVED", "frozen", "how_it_ended", "receipt"]

REMOVED = "it was removed"
"""Why a seat is given up that the components have no more."""


def frozen(component: str, desired: Desired) -> str:
    """By whom and since when, and what ends it."""
    since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(desired.frozen_since))
    who = f"frozen by {desired.frozen_by} since {since} UTC"
    return f"{who}: nothing is started or moved until `incumbent unfreeze {component}`"


def how_it_ended(spec: Spec | None, exited: m.Exited | None, refused: m.Refused | None) -> str:
    if refused is not None:
        return refused.why
    if exited is None or (exited.code is None and exited.signal is None):
        return "its tree was killed from outside"
    command = spec.command if spec is not None else ("it",)
    background = went_background(command, exited.code, exited.uptime, exited.left)
    if background is not None:
        return background
    if exited.signal is not None:
        return f"ended by signal {exited.signal} after {exited.uptime:.1f} s"
    return f"exited with {exited.code} after {exited.uptime:.1f} s"


def receipt(
    seat: str,
    before: Observed | None,
    node: str,
    noticed_at: float,
    handed_at: float,
    started_at: float,
    *,
    was_left: bool,
) -> str:
    """One line for a change of node, in milliseconds; "" for a restart in place, or where nobody
    wanted it meanwhile. `was_left`: its breadcrumb was still there, and its session was not.
    """
    if before is None or before.node == node or not before.node:
        return ""
    if before.state == "stopped" or before.reason == REMOVED:
        return ""
    name = seat.removesuffix("/0")
    started = f"started {_ms(started_at - handed_at)}"
    claimed = f"claimed {_ms(handed_at - noticed_at)}"
    if before.state != "released":
        total = _ms(started_at - noticed_at)
        why = "its session was gone" if was_left else "it had ended"
        return f"{name} {before.node} → {node} in {total} ms: {why} · {claimed} · {started}"
    return (
        f"{name} {before.node} → {node} in {_ms(started_at - before.noticed_at)} ms: "
        f"proved dead {_ms(before.proved_at - before.noticed_at)} · "
        f"handed over {_ms(noticed_at - before.proved_at)} · {claimed} · {started}"
    )


def _ms(seconds: float) -> str:
    ms = max(0.0, seconds) * 1000
    return f"{ms:.0f}" if ms >= 10 else f"{ms:.1f}"
