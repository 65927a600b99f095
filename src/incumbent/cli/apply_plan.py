"""`incumbent apply --plan`: what `apply` would change, and what that would do to what runs.

Rule of this file: pure, and nothing is shown that is named like a secret. Whether a key restarts what
runs is asked of `spec`, and how many at a time of the spec itself.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incumbent.agent.failures import STEADY_AFTER
from incumbent.agent.tree import seat_name
from incumbent.cli.cluster import Cluster, ComponentState
from incumbent.masking import MASK, is_secret, masked, masked_words
from incumbent.spec import Spec, plain, program

__all__ = ["Planned", "planned", "text"]

_NONE = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Of one component. `keys`: (key, before, after) as people see them; `effects`: sentences."""

    component: str
    what: str
    """created, changed, unchanged, absent (from FILE), or removed"""
    keys: tuple[tuple[str, str, str], ...] = ()
    effects: tuple[str, ...] = ()

    @property
    def is_change(self) -> bool:
        return self.what not in ("unchanged", "absent")


def planned(cluster: Cluster, specs: Sequence[Spec], *, prune: bool) -> list[Planned]:
    """In the order of FILE, then what FILE lacks."""
    there = {each.name: each for each in cluster.components if not each.is_removed}
    found = [_declared(spec, there.get(spec.name)) for spec in specs]
    ours = {spec.name for spec in specs}
    for name, state in there.items():
        if name not in ours:
            runs = ", ".join(_running(state, 10**9)) or "nothing of it runs"
            what = ("removed", f"stopped and removed: {runs}") if prune else ("absent", "goes on")
            found.append(Planned(component=name, what=what[0], effects=(what[1],)))
    return found


def text(plan: Planned) -> str:
    """A line for the component, and one for each key and effect."""
    lines = [f"{plan.component}: {plan.what if plan.what != 'absent' else 'not in the file'}"]
    width = max((len(key) for key, _, _ in plan.keys), default=0)
    lines += [f"  {key:{width}}  {before} → {after}" for key, before, after in plan.keys]
    return "\n".join([*lines, *(f"  {effect}" for effect in plan.effects)])


def _declared(spec: Spec, state: ComponentState | None) -> Planned:
    if state is None:
        copies = "1 copy" if spec.copies == 1 else f"{spec.copies} copies"
        return Planned(component=spec.name, what="created", effects=(f"{copies} to start",))
    if state.spec is None:
        why = (f"what stands there cannot be read: {state.problem}",)
        return Planned(component=spec.name, what="changed", effects=why)
    if state.spec == spec:
        return Planned(component=spec.name, what="unchanged")
    return Planned(
        component=spec.name,
        what="changed",
        keys=tuple(_changes(state.spec, spec)),
        effects=tuple(_effects(state.spec, spec, state)),
    )


def _changes(old: Spec, new: Spec) -> Iterator[tuple[str, str, str]]:
    for key in Spec.__struct_fields__:
        before, after = getattr(old, key), getattr(new, key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            for name in sorted(before.keys() | after.keys()):
                if before.get(name) != after.get(name):
                    pair = _entry(before, name), _entry(after, name)
                    yield f"{key}.{name}", *pair
        else:
            yield key, _shown(before), _shown(after)


def _entry(table: Mapping[str, Any], name: str) -> str:
    if name not in table:
        return _NONE
    value = table[name]
    if isinstance(value, str):
        return MASK if is_secret(name) else json.dumps(masked(name, value), ensure_ascii=False)
    return _shown(value)


def _shown(value: Any) -> str:
    if value is None or value == ():
        return _NONE
    if isinstance(value, tuple) and all(isinstance(word, str) for word in value):
        return shlex.join(masked_words(value))
    told = plain(value)
    if isinstance(told, dict):
        if told.get("command"):
            told["command"] = shlex.join(masked_words(told["command"]))
        value = {key: each for key, each in told.items() if each not in ("", [], None)}
    elif isinstance(value, str):
        value = masked("", value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _effects(old: Spec, new: Spec, state: ComponentState) -> Iterator[str]:
    if new.copies > old.copies:
        yield f"starts {_names(new.name, range(old.copies, new.copies))}"
    if new.copies < old.copies:
        yield f"stops {_names(new.name, range(new.copies, old.copies))}"
    running = _running(state, min(old.copies, new.copies))
    if program(old) == program(new):
        yield "restarts nothing"
    elif not state.desired.run:
        yield "an operator stopped it: `incumbent start` starts it with this"
    elif state.desired.frozen_by:
        yield f"frozen by {state.desired.frozen_by}: restarts nothing before `incumbent unfreeze`"
    elif not running:
        yield "nothing of it runs: it starts with this"
    elif new.copies == 1:
        yield f"restarts {running[0].partition('/')[0]} where it runs"
    else:
        up = "is ready" if new.ready is not None else f"has run for {STEADY_AFTER:g} s"
        yield (
            f"restarts {', '.join(running)} where they run, in no fixed order, "
            f"{new.max_parallel} at a time: the next one when the one before {up}"
        )
        back = "all go back" if new.auto_revert else "the others stay as they are"
        yield f"at the first failure {back}"


def _running(state: ComponentState, copies: int) -> list[str]:
    seats = [each for each in state.seats if each.breadcrumbs and each.number < copies]
    return [seat_name(state.name, each.number) for each in seats]


def _names(component: str, numbers: range) -> str:
    return ", ".join(seat_name(component, number) for number in numbers)
