"""Make a failing seed's schedule small: `python -m tests.simulation.shrink WORLD SEED [KIND …]`.

WORLD is one of those in `hunt.py`: election, cluster, both on an ensemble, or a recipe. Prints the
small schedule as Python, for `corpus.py`, and writes its timeline. Exit code 0: done; 1: the seed
does not fail.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tests.simulation.hunt import WORLDS

from incumbent.testing.faults import Fault
from incumbent.testing.shrink import shrink

__all__ = ["kind_of_failure", "main"]


def kind_of_failure(
    world: str, seed: int, kinds: tuple[str, ...], faults: Sequence[Fault]
) -> str | None:
    """The first words of what failed; None if nothing did. Two overlaps are of one kind."""
    try:
        WORLDS[world](seed, kinds, faults).run()
    except AssertionError as error:
        lines = str(error).splitlines()
        said = next((line for line in lines if line and not line.startswith("seed ")), "it failed")
        return said.split(" ")[0].split(":")[0]
    return None


def main(world: str, seed: int, kinds: tuple[str, ...] = ()) -> int:
    wanted = os.environ.pop("TIMELINES", None)
    os.environ["TIMELINES"] = "0"
    whole = list(WORLDS[world](seed, kinds, None).faults)
    kind = kind_of_failure(world, seed, kinds, whole)
    if kind is None:
        print(f"{world}, seed {seed}: it does not fail")
        return 1
    print(f"{world}, seed {seed}: {kind!r}, {len(whole)} faults", file=sys.stderr)
    small = shrink(whole, lambda some: kind_of_failure(world, seed, kinds, some) == kind)
    print(f"# {world}, seed {seed}: {len(small)} of {len(whole)} faults")
    for fault in small:
        print(f"{fault!r},")
    del os.environ["TIMELINES"]
    if wanted is not None:
        os.environ["TIMELINES"] = wanted
    try:
        WORLDS[world](seed, kinds, small).run()
    except AssertionError as error:
        print(f"{error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), tuple(sys.argv[3:])))
