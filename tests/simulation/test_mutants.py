"""The simulated world is worth what it catches: each rule of safety, broken, must be caught.

A mutant is our own code with one rule taken out. The seeds that the real code survives must
find it; one that survives them is a rule that nothing tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.simulation.hunt import CAUGHT, main

ROOT = Path(__file__).parents[2]
LAST_SEED = 60


class Mutant(NamedTuple):
    rule: str
    file: str
    code: str
    broken: str
    kinds: tuple[str, ...] = ()
    world: str = "cluster"


MUTANTS = [
    Mutant(
        "a start waits until every breadcrumb's instance is proven dead",
        "agent/breadcrumbs.py",
        "        if isinstance(verdict, StillWaiting):\n",
        "        if False:\n",
        ("delete candidate",),
    ),
    Mutant(
        "while its session lives, nothing proves an instance dead",
        "agent/lifecycle.py",
        "    if session_lives:\n",
        "    if False:\n",
        ("delete candidate",),
    ),
    Mutant(
        "every start is a new epoch",
        "agent/runner.py",
        "epoch = ground.epoch if ground.granted else max(ground.epoch, newest) + 1",
        "epoch = max(ground.epoch, 1)",
    ),
    Mutant(
        "a session's programs are dead before it can end: the hard deadline",
        "guardian/seat.py",
        "        return self.lease.valid_until - self.start.hard\n",
        "        return self.lease.valid_until + 60.0\n",
    ),
    Mutant(
        "the lease is no longer than the session",
        "lease.py",
        "        return self._base + self.timeout - (self.timeout * 0.01",
        "        return self._base + 3 * self.timeout - (self.timeout * 0.01",
    ),
    Mutant(
        "the candidate is given up only after the proof of death",
        "agent/tenure.py",
        "            await self._runner.stop(why)\n            await asyncio.wait([reading]",
        "            await asyncio.wait([reading]",
    ),
    Mutant(
        "a start that was granted to us bears the nonce of our offer",
        "agent/start.py",
        '    is_ours = nonce != "" and record.nonce == nonce\n',
        '    is_ours = nonce != ""\n',
        ("drain", "kill guardian"),
    ),
    Mutant(
        "a tree is called empty only on proof",
        "guardian/seat.py",
        "        self.exited = Exited(\n",
        '        self.state = "empty"\n        self.exited = Exited(\n',
    ),
    Mutant(
        "whoever is lost for good is replaced",
        "agent/lifecycle.py",
        '    if crumb.containment == "sealed" and was_bound:\n',
        "    if False:\n",
        ("step wall clock",),
    ),
    Mutant(
        "in a pause the end of a session proves nothing",
        "agent/lifecycle.py",
        "    was_bound = crumb.control == control\n",
        "    was_bound = True\n",
        ("pause", "pause", "cut"),
    ),
    Mutant(
        "after it the guardian keeps deadlines before anybody relies on them",
        "agent/custody.py",
        "m.Paused(paused=paused, number=self._pauses)",
        "m.Paused(paused=True, number=self._pauses)",
        ("pause", "pause", "cut", "kill agent"),
    ),
    Mutant(
        "and then others may rely on them",
        "agent/pausing.py",
        "            if self._is_due(instance, zxid) and not term.is_carried(instance):\n",
        "            if False:\n",
        ("pause",),
    ),
    Mutant(
        "a guardian is told of a pause on an operator's word only",
        "agent/pausing.py",
        "            is_paused=view.control.paused,\n",
        "            is_paused=view.control.paused or bool(term.instances),\n",
        ("cut",),
    ),
    Mutant(
        "a queue's item whose taking is not known is named, not passed over",
        "recipes/items.py",
        "                if isinstance(found, Refused):\n                    break\n",
        "                if isinstance(found, Refused):\n                    return False\n",
        ("lose replies",),
        "queue",
    ),
    Mutant(
        "an item whose putting is not known is not put again",
        "recipes/items.py",
        "                made = await self._read_back(stem, body, made)\n",
        "                continue\n",
        ("lose replies",),
        "queue",
    ),
    Mutant(
        "an addition is not made again unless it is known not to have been made",
        "recipes/counter.py",
        "            if made:\n",
        "            if False:\n",
        ("lose replies",),
        "counter",
    ),
    Mutant(
        "nobody leaves a double barrier before all want to",
        "recipes/double_barrier.py",
        "SetData(self._at(name), left, 2)",
        "SetData(self._at(name), left)",
        ("lose replies",),
        "double-barrier",
    ),
    Mutant(
        "what nobody saw the end of is not run again unless that is wanted",
        "agent/runs.py",
        "    if not is_first or retry:\n",
        "    if True:\n",
        world="once",
    ),
    Mutant(
        "a done item leaves a mark",
        "work/claim.py",
        "        return self._end(marked, leaves_effects=False)\n",
        "        return self._end(None, leaves_effects=False)\n",
        world="work",
    ),
    Mutant(
        "a claim is ours only if it bears our nonce",
        "work/desk.py",
        "if data != each.nonce.encode() or stat.ephemeralOwner != self.client.session_id:",
        "if False:",
        world="work",
    ),
    Mutant(
        "a claim is lost before its session can be over",
        "work/claim.py",
        "        left = self.lease.valid_until - self._owner.grace - self._client.clock.boottime()\n",
        "        left = 60.0\n",
        ("freeze",),
        world="work",
    ),
    Mutant(
        "a claim whose handler failed stands for the lag",
        "work/claim.py",
        "        wait = self._owner.lag if leaves_effects else 0.0\n",
        "        wait = 0.0\n",
        ("freeze",),
        world="work",
    ),
    Mutant(
        "a failure counts once",
        "agent/failures.py",
        "    if any(each.id == failure.id for each in history.failures):\n",
        "    if False:\n",
        ("lose replies",),
        "failures",
    ),
    Mutant(
        "what fails again and again waits longer and longer",
        "agent/failures.py",
        "    if last is None or row < 2:\n",
        "    if True:\n",
        world="failures",
    ),
    Mutant(
        "a node that loses its session again and again is passed over",
        "agent/steadiness.py",
        "        elif why := why_aside(facts, now):\n            spared[node] = why\n",
        "",
        world="flapping",
    ),
    Mutant(
        "no order is taken from an open tree",
        "agent/admission.py",
        '            return f"{missing} is missing; `incumbent init` makes it anew"\n'
        '        return who_may_write(found) if found else ""\n',
        '            return f"{missing} is missing; `incumbent init` makes it anew"\n'
        '        return ""\n',
        world="opened",
    ),
    Mutant(
        "nor from a component that is open",
        "agent/view.py",
        "                why = await self._distrust(view.name)\n",
        '                why = ""\n',
        world="opened",
    ),
    Mutant(
        "a live instance's breadcrumb that is deleted by hand is made again",
        "agent/records.py",
        "        while str(crumb.epoch) not in names and not instance.is_empty:\n",
        "        while False:\n",
        world="crumb-deleted",
    ),
    Mutant(
        "a claim that is gone was ended only if its record says so",
        "work/claim.py",
        "                    if await self._has_become(after):\n",
        "                    if True:\n",
        world="work-queue",
    ),
    # What only an ensemble can catch:
    Mutant(
        "an acknowledged beat is not yet a renewed session",
        "lease.py",
        "        if self.tick == 0:\n",
        "        if True:\n",
        ("lose after reply",),
        "election-ensemble",
    ),
    Mutant(
        "nor is the beat before it, for touches need not be regular",
        "lease.py",
        "        while self._touches and self._touches[0][1] <= sent_at - self.report_lag:\n"
        "            self._base = max(self._base, self._touches.popleft()[0])\n",
        "        if self._touches:\n"
        "            before = self._touches[-1][0]\n"
        "            self._base = max(self._base, min(before, sent_at - self.report_lag))\n",
        ("lose after pause",),
        "election-ensemble",
    ),
    # Recipes:
    Mutant(
        "a reader waits for the writers before it",
        "recipes/dialects.py",
        "        return not (self.is_reader and a_reader)\n",
        "        return not a_reader\n",
        world="rwlock",
    ),
    Mutant(
        "a respawned agent knows what configuration an instance was started with",
        "agent/runner.py",
        "            self.written = crumb\n            self._rolling.began(crumb)\n",
        "            self.written = crumb\n            self._rolling.began(crumb)\n"
        "            self._rolling.told(self._rolling.wanted())\n",
        ("kill agent",),
        world="configured",
    ),
    Mutant(
        "no more copies than max_parallel are down for a change",
        "agent/rollout.py",
        "    if len(before) >= rules.max_parallel:\n",
        "    if False:\n",
        world="gently-rolled-out",
    ),
    Mutant(
        "a copy that is not up yet keeps its turn",
        "agent/rollout.py",
        '    number, state = str(copy.number), "up" if copy.is_up else "going"\n',
        '    number, state = str(copy.number), "up"\n',
        world="gently-rolled-out",
    ),
    Mutant(
        "an instance is not proven dead before everything beside it is",
        "agent/beside.py",
        "        while alive := [each for each in self.alive() if not each.is_empty]:\n",
        "        while alive := []:\n",
        ("drain",),
        world="cared-for",
    ),
    Mutant(
        "a start waits for the hook that comes before it",
        "agent/runner.py",
        "            await self._not_started(place, epoch, why, not give_up())\n            return\n",
        "            pass\n",
        ("drain",),
        world="cared-for",
    ),
    Mutant(
        "no more are inside than the size allows",
        "recipes/semaphore.py",
        "        return len(self._place.ahead()) < self._size\n",
        "        return len(self._place.ahead()) <= self._size\n",
        world="semaphore",
    ),
    Mutant(
        "who gets in tells the one behind it",
        "recipes/semaphore.py",
        "        if self._place.listing[-1].name != self._place.name:\n",
        "        if False:\n",
        world="semaphore",
    ),
    Mutant(
        "a hold's number is counted for the version that was read",
        "recipes/epoch.py",
        'SetData(path, b"%d" % (number + 1), version)',
        'SetData(path, b"%d" % (number + 1))',
        world="lock",
    ),
    Mutant(
        "a multilock waits in each of its queues",
        "recipes/multilock.py",
        "        await place.first()\n",
        "        await places[0].first()\n",
        world="multilock",
    ),
]


def hunt(
    package: Path, world: str, last: int, kinds: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """Run seeds against the package below this folder, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.hunt", world, "1", str(last), *kinds],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}", "TIMELINES": "0"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.rule.replace(" ", "-") for m in MUTANTS])
def test_a_broken_rule_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src" / "incumbent", tmp_path / "incumbent")
    file = tmp_path / "incumbent" / mutant.file
    code = file.read_text()
    assert code.count(mutant.code) == 1, f"the rule has moved: look for it in {mutant.file}"
    file.write_text(code.replace(mutant.code, mutant.broken))

    hunted = hunt(tmp_path, mutant.world, LAST_SEED, mutant.kinds)

    assert hunted.returncode == CAUGHT, f"{hunted.stdout}{hunted.stderr}"
    seed = int(hunted.stdout.split()[-1])
    assert main(mutant.world, seed, seed, mutant.kinds) == 0, "the unbroken code is caught as well"
