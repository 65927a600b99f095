"""Our library's lead: says `leader` when it leads; at SIGTERM `releasing`, and gives it up.

usage: library_lead.py HOSTS PATH NAME SESSION_SECONDS TICK_SECONDS
"""

from __future__ import annotations

import asyncio
import signal
import sys

from incumbent import aio


async def main(hosts: str, path: str, name: str, session: str, tick: str) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with aio.connect(hosts, session_timeout=float(session), tick=float(tick)) as zk:
        print("standing", flush=True)
        async with zk.lead(path, member=name):
            print("leader", flush=True)
            await told.wait()
            print("releasing", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
