"""For tests: a server with faults to order, and how this project proves its promise.

`EmbeddedServer` is a ZooKeeper server inside a test, and `plugin` has pytest fixtures of it: this
is for any project. `world.World` runs the real client, server, recipes and agent in one thread,
in virtual time, on hosts that crash, freeze, sleep, drift and are cut off from each other; a seed
is one exact run. `auditor` judges journals and imports nothing of ours; `witness` is the program
that writes them.

Rule of this file: it imports nothing before it is asked for it, so that the auditor starts alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incumbent.testing.embedded import EmbeddedServer
    from incumbent.testing.ensemble import Ensemble
    from incumbent.testing.faults import Fault, describe, draw, inflict
    from incumbent.testing.mishaps import Mishap
    from incumbent.testing.timeline import Timeline
    from incumbent.testing.world import World

__all__ = [
    "EmbeddedServer",
    "Ensemble",
    "Fault",
    "Mishap",
    "Timeline",
    "World",
    "describe",
    "draw",
    "inflict",
]

_HOME = {
    "EmbeddedServer": "embedded",
    "Ensemble": "ensemble",
    "Fault": "faults",
    "Mishap": "mishaps",
    "Timeline": "timeline",
    "World": "world",
    "describe": "faults",
    "draw": "faults",
    "inflict": "faults",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
