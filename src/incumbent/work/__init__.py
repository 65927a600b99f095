"""Work that is done once: claims on items of work, and what is made of them.

    async with zk.work("/settlement") as work:
        async for claim in work.claims(ids):
            ...

Rule of this file: an item is begun under a claim that is believed, and what was finished
under one is not begun again for `keep_done` seconds, whatever an old list or a copy says.
"""

from __future__ import annotations

from incumbent.work.claim import Claim
from incumbent.work.queue import WorkQueue
from incumbent.work.records import Record, Standing
from incumbent.work.run import Counters, GiveBack
from incumbent.work.work import Work

__all__ = ["Claim", "Counters", "GiveBack", "Record", "Standing", "Work", "WorkQueue"]
