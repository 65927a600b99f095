"""`once` in the simulated world: each period's command, and how often it was started.

The errand is the real one; the command is a stretch of time on its host. As a guardian does it,
the command is dead before its hold may be another's: it ends when its process is killed and when
its hold is lost.

Rule of this file: a start is counted when it happens, whatever becomes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tests.simulation.recipes import SESSION, Trial

from incumbent import aio
from incumbent.agent.ending import Ended, Ending
from incumbent.agent.exit_codes import INTERRUPTED, LOST
from incumbent.agent.once import ClockWrong, Once
from incumbent.agent.period import Every
from incumbent.agent.runs import KEPT, read_runs
from incumbent.agent.wrapped_settings import OnceSettings, WrappedSettings
from incumbent.testing.faults import Fault
from incumbent.testing.world import Host

__all__ = ["OnceTrial"]

EVERY = Every(3)


class OnceTrial(Trial):
    """Of two keys, one gives up what was interrupted, the other runs it again.

    A period's command is started at most once where it gives up, never again after an end was
    written down where it retries, and never beside another one of its key. Whoever is told an
    exit code is told that of a run there was.
    """

    name = "once"
    faults_for = 12.0

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.starts: dict[tuple[str, str], int] = {}
        self.finished: dict[tuple[str, str], set[int]] = {}
        self.codes: dict[tuple[str, str], set[int]] = {}
        self.refused = 0
        self.over = {"strict": 0, "again": 0}
        self.numbers = iter(range(1_000, 1 << 30))

    async def use(self, zk: aio.Zk, host: Host) -> None:
        key = host.rng.choice(["strict", "again"])
        period = EVERY.start(host.clock.wall())
        record = f"/app/{key}"
        settings = WrappedSettings(
            errand="once",
            path=f"{record}/line",
            hosts="",
            name=host.name,
            session_timeout=SESSION,
            once=OnceSettings(
                key=key, record=record, period=period, length=3.0, retry=key == "again"
            ),
        )
        errand = Once(
            settings,
            say=lambda line: self.world.record("said", line=line),
            pid=1,
            rng=host.rng,
            clock=host.clock,
        )
        try:
            code = await self.once(zk, host, errand, (key, period))
        except ClockWrong:  # somebody has set the clock of a machine, and it is said
            self.refused += 1
            return
        if code == 0:  # a later period's was run: no command of this world ends with 0
            self.over[key] += 1  # for an hour, where all clocks were set back by one
        if code not in (None, 0, INTERRUPTED, LOST) and code not in self.codes.get(
            (key, period), ()
        ):
            self.blame(f"{key} {period}: exit code {code} of no run that there was")
        await asyncio.sleep(host.rng.expovariate(4))

    async def once(self, zk: aio.Zk, host: Host, errand: Once, what: tuple[str, str]) -> int | None:
        client = zk.client
        if (code := await errand.before(client)) is not None:
            return code
        place = await errand.enter(client, zk.contenders(f"/app/{what[0]}/line").ledger)
        try:
            await errand.admitted(place)
            hold = errand.hold(place, SESSION / 5)
            await hold.begin()
            try:
                if (code := await errand.claim(client, place)) is not None:
                    return code
                ending = Ending(Ended.NOT_STARTED)
                if hold.why_not() is None:
                    self.starting(what)
                    belief = self.believes(host, hold, what[0])
                    code = next(self.numbers)
                    self.codes.setdefault(what, set()).add(code)
                    lost = asyncio.ensure_future(hold.lost.wait())
                    await asyncio.wait([lost], timeout=host.rng.expovariate(1))
                    lost.cancel()
                    is_lost = hold.why_not() is not None
                    ending = Ending(Ended.LOST if is_lost else Ended.OWN, code)
                    self.beliefs.remove(belief)
                await errand.ended(client, ending, SESSION)
                if ending.how is Ended.OWN:
                    await self.written(zk, what, code)
                return errand.code(ending)
            finally:
                hold.end()
        finally:
            await place.leave()

    def starting(self, what: tuple[str, str]) -> None:
        key, period = what
        self.starts[what] = self.starts.get(what, 0) + 1
        if key == "strict" and self.starts[what] > 1:
            self.blame(f"{key} {period} is started again")
        if what in self.finished:
            self.blame(f"{key} {period} is started after its end was written down")

    async def written(self, zk: aio.Zk, what: tuple[str, str], code: int | None) -> None:
        """Note that it is done, if the tree says so."""
        data, _ = await zk.get(f"/app/{what[0]}")
        run = read_runs(data, what[0]).of(what[1])
        if run is not None and run.state == "done" and run.code == code:
            self.finished.setdefault(what, set()).add(run.code)

    def look(self) -> None:
        held = self.held()
        for key in ("strict", "again"):
            if len(those := [each for each in held if each.kind == key]) > 1:
                self.blame(f"two run {key}: {those[0]} and {those[1]}")

    def progressed(self) -> Mapping[str, int]:
        return {
            f"{key} is run": sum(what[0] == key for what in self.finished)
            + self.refused
            + self.over[key]
            for key in ("strict", "again")
        }

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        for key in ("strict", "again"):
            runs = read_runs(tree.get(f"/app/{key}", b""), key).runs
            if len(runs) > KEPT:
                self.blame(f"{key} has {len(runs)} runs")
            for run in runs:
                if (key, run.period) not in self.starts and run.state == "done":
                    self.blame(f"{key} {run.period} is done and was never started")
        kept = {f"/app/{key}{line}" for key in ("strict", "again") for line in ("", "/line")}
        return [path for path in tree if path not in kept]
