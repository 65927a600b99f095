"""What is known of a key of `once`: shown, or forgotten.

Rule of this file: what is under way is never forgotten.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from incumbent.agent.once import clock_time
from incumbent.agent.runs import Run, Runs, read_runs
from incumbent.cli.cluster import connected
from incumbent.cli.exits import DONE, No, failed, say, tell
from incumbent.cli.show import age, plain
from incumbent.cli.stdio import shown
from incumbent.client import Client
from incumbent.errors import BadVersion, IncumbentError, NoNode, NotEmpty
from incumbent.settings import Settings

__all__ = ["ask"]

_HEADS = ("period", "state", "node", "started", "took", "code", "why")
_NONE = "–"


def ask(settings: Settings, key: str, *, is_json: bool, forget: bool) -> int:
    """Show the runs of `key` on stdout, or forget them; the exit code."""
    try:
        return shown(lambda: asyncio.run(_ask(settings, key, is_json, forget)))
    except IncumbentError as error:
        return failed(error)


async def _ask(settings: Settings, key: str, is_json: bool, forget: bool) -> int:
    record = f"{settings.root}/once/{key}"
    async with connected(settings) as client:
        await client.sync("/")
        try:
            if forget:  # whatever is in it
                await _forget(client, key, record)
                tell(f"the runs of {key} are forgotten: it is run again when its time comes")
                return DONE
            runs = await _read(client, record)
        except NoNode:
            keys = f"`incumbent zk ls {settings.root}/once` lists the keys"
            raise No(f"nothing is known of {key}; {keys}") from None
    if is_json:
        print(json.dumps([run.as_object() for run in runs.runs], indent=2))
    elif runs.runs:
        print(plain(_HEADS, [_cells(run) for run in runs.runs]))
    else:
        say(f"{key} has not been run")
    return DONE


async def _read(client: Client, record: str) -> Runs:
    """The runs, of which one is interrupted if its holder has left the line without writing down
    its end; that comes before the leaving, so that the record is read on both sides of the line."""
    data, stat = await client.get(record)
    while True:
        line = await _tokens(client, f"{record}/line")
        data, after = await client.get(record)
        if after.mzxid == stat.mzxid:
            return read_runs(data, record).seen_with(line)
        stat = after


async def _tokens(client: Client, line: str) -> set[int]:
    try:
        names = await client.children(line)
    except NoNode:
        return set()
    stats = await asyncio.gather(*(client.exists(f"{line}/{name}") for name in names))
    return {stat.czxid for stat in stats if stat is not None}


async def _forget(client: Client, key: str, record: str) -> None:
    _, stat = await client.get(record)
    with suppress(NoNode, NotEmpty):
        await client.delete(f"{record}/line")
    try:
        await client.delete(record, stat.version)
    except NotEmpty:
        raise No(f"{key} is being run or waited for; nothing is forgotten") from None
    except BadVersion:
        raise No(f"{key} was run just now; look again with --history") from None
    except NoNode:
        return


def _cells(run: Run) -> tuple[str, ...]:
    return (
        run.period or "ever",
        run.state,
        run.node,
        clock_time(run.started),
        age(run.ended - run.started) if run.ended else _NONE,
        str(run.code) if run.state == "done" else _NONE,
        run.why or (f"attempt {run.attempt}: interrupted before" if run.attempt > 1 else _NONE),
    )
