"""Run seeds of a simulated world until one fails: `python -m … WORLD FIRST LAST [KIND …]`.

Exit code 0: every seed was clean; 9: one was not, which is the last word on standard output, and its
schedule is on the other.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

from tests.simulation.barriers import BarrierTrial, DoubleBarrierTrial
from tests.simulation.cared import CaredFor
from tests.simulation.cluster import Cluster
from tests.simulation.configured import Rewritten
from tests.simulation.election import Election
from tests.simulation.failing import Failing
from tests.simulation.items import CounterTrial, QueueTrial, ValueTrial
from tests.simulation.locks import LockTrial, MultiLockTrial, RwLockTrial, SemaphoreTrial
from tests.simulation.once import OnceTrial
from tests.simulation.recipes import Trial
from tests.simulation.rolled import Rolled
from tests.simulation.test_agent_closed import Opened
from tests.simulation.test_agent_failures import Flapping
from tests.simulation.test_agent_vandals import CrumbDeleted
from tests.simulation.views import CacheTrial, GroupTrial, ObserverTrial
from tests.simulation.work import NaiveTrial, WorkQueueTrial, WorkTrial

from incumbent.testing.faults import Fault

__all__ = ["CAUGHT", "WORLDS", "Run", "main"]

CAUGHT = 9

Run = Callable[[int, tuple[str, ...], Sequence[Fault] | None], Cluster | Election | Trial]

WORLDS: dict[str, Run] = {
    "election": lambda seed, kinds, faults: Election(seed, kinds=kinds, faults=faults),
    "election-ensemble": lambda seed, kinds, faults: Election(
        seed, kinds=kinds, faults=faults, ensemble=True
    ),
    "cluster": lambda seed, kinds, faults: Cluster(seed, kinds=kinds or None, faults=faults),
    "cluster-ensemble": lambda seed, kinds, faults: Cluster(
        seed, kinds=kinds or None, faults=faults, ensemble=True
    ),
    "failures": lambda seed, kinds, faults: Failing(seed, kinds=kinds or None, faults=faults),
    "flapping": lambda seed, kinds, faults: Flapping(seed),
    "opened": lambda seed, kinds, faults: Opened(seed),
    "crumb-deleted": lambda seed, kinds, faults: CrumbDeleted(seed),
    "cared-for": lambda seed, kinds, faults: CaredFor(seed, kinds=kinds or None, faults=faults),
    "configured": lambda seed, kinds, faults: Rewritten(seed, kinds=kinds or None, faults=faults),
    "rolled-out": lambda seed, kinds, faults: Rolled(seed, kinds=kinds or None, faults=faults),
    "gently-rolled-out": lambda seed, kinds, faults: Rolled(seed, gentle=True),
    "queue": lambda seed, kinds, faults: QueueTrial(seed, kinds=kinds, faults=faults),
    "counter": lambda seed, kinds, faults: CounterTrial(seed, kinds=kinds, faults=faults),
    "value": lambda seed, kinds, faults: ValueTrial(seed, kinds=kinds, faults=faults),
    "barrier": lambda seed, kinds, faults: BarrierTrial(seed, kinds=kinds, faults=faults),
    "double-barrier": lambda seed, kinds, faults: DoubleBarrierTrial(
        seed, kinds=kinds, faults=faults
    ),
    "once": lambda seed, kinds, faults: OnceTrial(seed, kinds=kinds, faults=faults),
    "lock": lambda seed, kinds, faults: LockTrial(seed, kinds=kinds, faults=faults),
    "rwlock": lambda seed, kinds, faults: RwLockTrial(seed, kinds=kinds, faults=faults),
    "semaphore": lambda seed, kinds, faults: SemaphoreTrial(seed, kinds=kinds, faults=faults),
    "multilock": lambda seed, kinds, faults: MultiLockTrial(seed, kinds=kinds, faults=faults),
    "cache": lambda seed, kinds, faults: CacheTrial(seed, kinds=kinds, faults=faults),
    "group": lambda seed, kinds, faults: GroupTrial(seed, kinds=kinds, faults=faults),
    "work": lambda seed, kinds, faults: WorkTrial(seed, kinds=kinds, faults=faults),
    "work-queue": lambda seed, kinds, faults: WorkQueueTrial(seed, kinds=kinds, faults=faults),
    "work-naive": lambda seed, kinds, faults: NaiveTrial(seed, kinds=kinds, faults=faults),
    "observer": lambda seed, kinds, faults: ObserverTrial(seed, kinds=kinds, faults=faults),
}


def main(world: str, first: int, last: int, kinds: tuple[str, ...]) -> int:
    for seed in range(first, last + 1):
        try:
            WORLDS[world](seed, kinds, None).run()
        except AssertionError as error:
            traceback.print_exception(error, limit=0)
            print("caught at", seed)
            return CAUGHT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), tuple(sys.argv[4:])))
