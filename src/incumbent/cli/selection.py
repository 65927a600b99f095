"""Which components and seats a command means: by name, glob, label, or the node that has them.

    web  'web*'      components           web/1  'web*/0'   seats
    --label team=x   of the component     --node n1         what n1 has now
                                          --node rack=a     what nodes with that label have

Rule of this file: it only reads, and what means nothing is an error that names what there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from incumbent.agent.tree import Tree, seat_name
from incumbent.cli.cluster import Cluster, SeatState, read_cluster
from incumbent.cli.exits import No, Usage
from incumbent.cli.wishes import components, spec_bytes
from incumbent.client import Client
from incumbent.errors import SpecError
from incumbent.spec import Spec, decode

__all__ = ["Choice", "owner", "select"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A component, and of its seats those that are meant; `only` empty: all of them."""

    component: str
    spec: Spec | None
    only: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.only or tuple(range(self.spec.copies if self.spec is not None else 1))

    @property
    def seats(self) -> list[str]:
        return [seat_name(self.component, number) for number in self.numbers]

    def singly(self) -> list[Choice]:
        """Each of its copies as a choice of its own."""
        if self.spec is None or self.spec.copies == 1:
            return [self]
        return [replace(self, only=(number,)) for number in self.numbers]

    @property
    def title(self) -> str:
        """As people call it."""
        return ", ".join(self.seats) if self.only else self.component


async def select(
    client: Client,
    tree: Tree,
    names: Sequence[str],
    *,
    node: str | None = None,
    labels: Sequence[str] = (),
) -> list[Choice]:
    """What all of these together mean; each narrows the others. Raises `No`, `Usage`."""
    if not names and node is None and not labels:
        raise Usage(
            "nothing is named: expected NAME… ('*' for all), --node NODE or --label KEY=VALUE"
        )
    wanted = _pairs(labels)
    specs = await _specs(client, tree)
    chosen = _by_name(specs, names or ["*"])
    if wanted:
        chosen = _by_label(chosen, wanted, specs.values())
    if node is not None:
        chosen = _by_node(chosen, node, await read_cluster(client, tree))
    return chosen


def owner(cluster: Cluster, seat: SeatState) -> str:
    """The node that has a seat: by its newest breadcrumb, else first in line; "" where none has."""
    if seat.breadcrumbs:
        return seat.breadcrumbs[-1].node
    keys = [name.partition("-")[0] for name in seat.contenders]
    nodes = [cluster.session_nodes[key] for key in keys if key in cluster.session_nodes]
    return nodes[0] if nodes else ""


async def _specs(client: Client, tree: Tree) -> dict[str, Spec | None]:
    names = await components(client, tree)
    found = await asyncio.gather(*(spec_bytes(client, tree, name) for name in names))
    specs: dict[str, Spec | None] = {}
    for name, read in zip(names, found, strict=True):
        if read is None:
            continue
        try:
            specs[name] = decode(read[0], tree.component(name))
        except SpecError:
            specs[name] = None
    return specs


def _by_name(specs: Mapping[str, Spec | None], patterns: Sequence[str]) -> list[Choice]:
    chosen: dict[str, set[int] | None] = {}  # None: the whole component
    for pattern in patterns:
        component, slash, number = pattern.rpartition("/")
        found = [name for name in specs if fnmatchcase(name, component if slash else pattern)]
        copies = {n: spec.copies if (spec := specs[n]) is not None else 0 for n in found}
        every = [(n, k) for n in found for k in range(copies[n])]
        seats = [(n, k) for n, k in every if slash and fnmatchcase(str(k), number)]
        if not (seats if slash else found):
            what = "seat" if slash else "component"
            there_are = ", ".join(specs) or "none; `incumbent apply FILE` declares some"
            raise No(f"there is no {what} {pattern}; there are: {there_are}")
        for name in () if slash else found:
            chosen[name] = None
        for name, k in seats:
            if (numbers := chosen.setdefault(name, set())) is not None:
                numbers.add(k)
    return [
        Choice(component=name, spec=specs[name], only=tuple(sorted(numbers or ())))
        for name, numbers in chosen.items()
    ]


def _pairs(labels: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not key or not equals:
            raise Usage(f"--label {label}: expected KEY=VALUE, like --label team=search")
        pairs[key] = value
    return pairs


def _by_label(
    chosen: Sequence[Choice], wanted: Mapping[str, str], specs: Iterable[Spec | None]
) -> list[Choice]:
    found = [c for c in chosen if c.spec is not None and wanted.items() <= c.spec.labels.items()]
    if not found:
        asked = ", ".join(f"{key}={value}" for key, value in wanted.items())
        known = sorted({f"{k}={v}" for spec in specs if spec for k, v in spec.labels.items()})
        raise No(
            f"no component here has {asked}; labels there are: {', '.join(known) or 'none'} "
            "(`labels` in the component file)"
        )
    return found


def _by_node(chosen: Sequence[Choice], node: str, cluster: Cluster) -> list[Choice]:
    meant = _nodes_with(node, cluster) if "=" in node else [node]
    there = {each.name: each for each in cluster.components}
    found = []
    for choice in chosen:
        state = there.get(choice.component)
        seats = state.seats if state is not None else ()
        has = [s.number for s in seats if owner(cluster, s) in meant and s.number in choice.numbers]
        if has:
            whole = tuple(has) == tuple(range(len(choice.numbers))) and not choice.only
            only = () if whole else tuple(has)
            found.append(Choice(component=choice.component, spec=choice.spec, only=only))
    if not found:
        live = ", ".join(sorted(cluster.nodes)) or "none"
        raise No(
            f"{', '.join(meant)} has nothing of what was named; live nodes: {live} "
            "(`incumbent node list`)"
        )
    return found


def _nodes_with(label: str, cluster: Cluster) -> list[str]:
    """The live nodes that have a label, KEY=VALUE. Raises `No` if there is none."""
    key, _, value = label.partition("=")
    found = sorted(n for n, facts in cluster.nodes.items() if facts.labels.get(key) == value)
    if not found:
        known = sorted({f"{k}={v}" for f in cluster.nodes.values() for k, v in f.labels.items()})
        raise No(
            f"no live node has the label {label}; labels there are: {', '.join(known) or 'none'} "
            "(`labels` in a node's /etc/incumbent/agent.toml)"
        )
    return found
