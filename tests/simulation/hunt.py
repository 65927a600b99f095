"""Run seeds of the simulated cluster until one fails: `python -m … FIRST LAST [KIND …]`.

Exit code 0: every seed was clean; 9: one was not, and it is printed with its schedule.
"""

from __future__ import annotations

import sys
import traceback

from tests.simulation.cluster import Cluster

CAUGHT = 9


def main(first: int, last: int, kinds: tuple[str, ...]) -> int:
    for seed in range(first, last + 1):
        try:
            Cluster(seed, kinds=kinds or None).run()
        except AssertionError as error:
            traceback.print_exception(error, limit=0)
            return CAUGHT
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:])))
