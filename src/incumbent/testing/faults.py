"""Faults drawn from a seed: what breaks, where, when and for how long.

Each seed draws first which kinds of fault it uses and how often (swarm testing: a schedule with
everything in it hides what one with three kinds finds), then the schedule. `inflict` applies it
and heals everything at its end. Seed and commit are the bug report; `describe` prints the rest.

Rule of this file: a schedule is data, drawn before anything happens; applying it draws nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from incumbent.testing.world import World

__all__ = ["ALL_KINDS", "KINDS", "Fault", "Inflict", "Undo", "describe", "draw", "inflict"]

Undo = Callable[[], None]
Inflict = Callable[[World, "Fault"], Undo | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: `kind` on `a` (and `b`, for links), from `at` for `lasts` seconds."""

    at: float
    kind: str
    a: str
    b: str = ""
    lasts: float = 0.0

    def __str__(self) -> str:
        where = f"{self.a}–{self.b}" if self.b else self.a
        return f"{self.at:8.3f} s  {self.kind} {where} for {self.lasts:.3f} s"


def _cut(world: World, fault: Fault) -> Undo:
    world.cut(fault.a, fault.b)
    return lambda: world.heal(fault.a, fault.b)


def _block(world: World, fault: Fault) -> Undo:
    world.block(fault.a, fault.b)
    return lambda: world.heal(fault.a, fault.b)


def _slow(world: World, fault: Fault) -> Undo:
    links = [world.link(fault.a, fault.b), world.link(fault.b, fault.a)]
    for link in links:
        link.delay = 0.05 + fault.lasts / 20

    def undo() -> None:
        for link in links:
            link.delay = world.network.delay

    return undo


def _fade(world: World, fault: Fault) -> Undo:
    """One way gets slow, then both are cut: what was acknowledged last was old by then."""
    link = world.link(fault.a, fault.b)
    link.delay = 0.1 + fault.at % 0.7
    is_over = False

    def cut() -> None:
        if not is_over:
            world.cut(fault.a, fault.b)

    def undo() -> None:
        nonlocal is_over
        is_over = True
        link.delay = world.network.delay
        world.heal(fault.a, fault.b)

    world.network.at(world.now + min(2.0, fault.lasts / 3), cut)
    return undo


def _lossy(world: World, fault: Fault) -> Undo:
    links = [world.link(fault.a, fault.b), world.link(fault.b, fault.a)]
    for link in links:
        link.loss = 0.2

    def undo() -> None:
        for link in links:
            link.loss = 0.0

    return undo


def _reset(world: World, fault: Fault) -> None:
    world.reset(fault.a, fault.b)


def _freeze(world: World, fault: Fault) -> Undo:
    """SIGSTOP to the processes that run now."""
    frozen = list(world.host(fault.a).processes)
    for process in frozen:
        process.freeze()

    def undo() -> None:
        for process in frozen:
            process.thaw()

    return undo


def _suspend(world: World, fault: Fault) -> Undo:
    host = world.host(fault.a)
    host.suspend()
    return host.resume


def _step_wall(world: World, fault: Fault) -> None:
    world.host(fault.a).clock.wall_step += 3600.0 if fault.lasts > 1 else -3600.0


def _crash(world: World, fault: Fault) -> Undo:
    host = world.host(fault.a)
    host.crash()

    def undo() -> None:
        if not host.up:
            host.restart()

    return undo


KINDS: Mapping[str, Inflict] = {
    "cut": _cut,
    "block": _block,
    "slow": _slow,
    "fade": _fade,
    "lossy": _lossy,
    "reset": _reset,
    "freeze": _freeze,
    "stall": _freeze,  # for milliseconds, often
    "suspend": _suspend,
    "step wall clock": _step_wall,
    "crash": _crash,
}


def _slow_disk(world: World, fault: Fault) -> Undo:
    disk = world.host(fault.a).disk
    disk.slow_by = 0.05 + fault.lasts / 10
    return disk.heal


def _full_disk(world: World, fault: Fault) -> Undo:
    disk = world.host(fault.a).disk
    disk.is_full = True
    return disk.heal


def _fail_commit(world: World, fault: Fault) -> None:
    world.host(fault.a).disk.fail(1 + int(fault.at * 1000) % 5)


def _jump_boottime(world: World, fault: Fault) -> None:
    """As after a suspend that nobody noticed: CLOCK_BOOTTIME is further on. It never goes back."""
    world.host(fault.a).clock.jump(fault.lasts)


def _drift(world: World, fault: Fault) -> None:
    """The clock goes at another rate, within what the world allows."""
    world.host(fault.a).clock.slew(1.0 + world.drift * (2 * (fault.at % 1.0) - 1))


def _reorder(world: World, fault: Fault) -> Undo:
    """A later connection's segments overtake an earlier one's; within one they keep their order."""
    links = [world.link(fault.a, fault.b), world.link(fault.b, fault.a)]
    for link in links:
        link.jitter = 0.05 + fault.lasts / 20

    def undo() -> None:
        for link in links:
            link.jitter = world.network.jitter

    return undo


def _lose_replies(world: World, fault: Fault) -> Undo:
    """What `a` asks of `b` is done; the answers are lost, and then the connection."""
    world.block(fault.b, fault.a)

    def undo() -> None:
        world.reset(fault.a, fault.b)
        world.heal(fault.a, fault.b)

    return undo


ALL_KINDS: Mapping[str, Inflict] = {
    **KINDS,
    "slow disk": _slow_disk,
    "full disk": _full_disk,
    "fail commit": _fail_commit,
    "jump boottime": _jump_boottime,
    "drift": _drift,
    "reorder": _reorder,
    "lose replies": _lose_replies,
}
"""`KINDS` keeps what seeds of old were drawn from; these are all."""

_ON_LINKS = ("cut", "block", "slow", "fade", "lossy", "reset", "reorder", "lose replies")
_ON_DISKS = ("slow disk", "full disk", "fail commit")
_SHORT = {"stall": (0.001, 0.2), "lose replies": (0.005, 0.5)}


def draw(
    rng: random.Random,
    *,
    hosts: Sequence[str],
    servers: Sequence[str],
    duration: float,
    longest: float,
    kinds: Sequence[str] = tuple(KINDS),
    sparing: Sequence[str] = (),
    on_servers: Sequence[str] = (),
) -> list[Fault]:
    """A schedule within `duration` seconds; no fault lasts more than `longest`.

    Links are drawn between a host and a server, or between servers; hosts from both. `sparing`
    names kinds that are not drawn for servers, `on_servers` kinds that are for no others. Kinds
    that are not of `ALL_KINDS` are given to `inflict`, and strike a host if not `on_servers`.
    """
    chosen = sorted(rng.sample(list(kinds), rng.randint(1, min(4, len(kinds)))))
    gap = rng.uniform(0.3, 5.0)  # how often something breaks
    typical = rng.uniform(0.05, longest / 2)
    faults = []
    at = rng.uniform(0.0, gap)
    while at < duration:
        kind = rng.choice(chosen)
        lasts = min(longest, rng.expovariate(1 / typical))
        if rng.random() < 0.3:  # what outlasts a session is what takes something from somebody
            lasts = rng.uniform(longest / 2, longest)
        if kind in _SHORT:
            lasts = rng.uniform(*_SHORT[kind])
        if kind in _ON_LINKS:
            ends = [rng.choice(list(hosts)), rng.choice(list(servers))]
            if kind != "lose replies":
                rng.shuffle(ends)
            if len(servers) > 1 and rng.random() < 0.3:
                ends = rng.sample(list(servers), 2)
            faults.append(Fault(at=at, kind=kind, a=ends[0], b=ends[1], lasts=lasts))
        elif kind in _ON_DISKS or kind in on_servers:
            faults.append(Fault(at=at, kind=kind, a=rng.choice(list(servers)), lasts=lasts))
        else:
            anywhere = kind in ALL_KINDS and kind not in sparing
            where = rng.choice([*hosts, *servers] if anywhere else list(hosts))
            faults.append(Fault(at=at, kind=kind, a=where, lasts=lasts))
        at += rng.expovariate(1 / gap)
    return faults


async def inflict(
    world: World,
    faults: Sequence[Fault],
    *,
    more: Mapping[str, Inflict] | None = None,
    on_up: Callable[[str], None] | None = None,
    who: Callable[[str], str] = str,
) -> None:
    """Apply the faults as their times come, then heal everything: links, sleepers, crashed hosts.

    `more` adds kinds of fault. `on_up` is called with the name of a host that is up again after
    a crash, to start there what an init system would. `who` turns a name in the schedule, such
    as "leader", into that of a host when the fault's time has come.
    """
    kinds = {**ALL_KINDS, **(more or {})}
    began = world.now
    undos: list[tuple[float, int, Fault, Undo]] = []
    steps: list[tuple[float, Fault]] = sorted(((f.at, f) for f in faults), key=lambda s: s[0])

    def finish(fault: Fault, undo: Undo) -> None:
        down = not world.host(fault.a).up
        undo()
        if down and world.host(fault.a).up and on_up is not None:
            on_up(fault.a)

    async def until(at: float) -> None:
        while undos and undos[0][0] <= at:
            when, _, fault, undo = undos.pop(0)
            await asyncio.sleep(max(0.0, began + when - world.now))
            finish(fault, undo)
        await asyncio.sleep(max(0.0, began + at - world.now))

    for number, (at, fault) in enumerate(steps):
        await until(at)
        fault = replace(fault, a=who(fault.a), b=who(fault.b))
        if not world.host(fault.a).up or fault.a == fault.b:
            continue
        world.note(f"fault: {fault}")
        world.mark(fault.a, f"{fault.kind} {fault.b}".strip(), lasts=fault.lasts)
        undo = kinds[fault.kind](world, fault)
        if undo is not None:
            undos.append((at + fault.lasts, number, fault, undo))
            undos.sort(key=lambda u: u[:2])
    while undos:
        await until(undos[0][0])
    world.heal_all()


def describe(seed: int, faults: Sequence[Fault]) -> str:
    """The bug report: paste it; the run is the same on any machine."""
    return "\n".join([f"seed {seed}, {len(faults)} faults:", *map(str, faults)])
