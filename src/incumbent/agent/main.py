"""The agent's process, as a guardian starts it: `python -m incumbent.agent --link-fd N`.

It loads what it will need, says HELLO and waits: a guardian may have started it ahead, as the
spare of an agent that still lives. `--wrapped` makes it the agent of one command: `incumbent
elect`, `lock` or `once`.

Rule of this file: the rim. Signals for "stop" are the guardian's to get; while the guardian
lives we ignore them, and when it is dead we leave as soon as everything is proven dead.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from incumbent.agent.lines import Lines
from incumbent.agent.link import GuardianLink
from incumbent.clock import SYSTEM
from incumbent.guardian import kernel

__all__ = ["main"]

Serve: TypeAlias = Callable[[GuardianLink, Mapping[str, Any]], Awaitable[int]]


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="incumbent-agent")
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--wrapped", action="store_true")
    options = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kernel.set_dumpable(False)  # it holds the session's password
    serve = _wrapped() if options.wrapped else _agent()
    gc.freeze()
    return asyncio.run(_run(options.link_fd, serve))


async def _run(link_fd: int, serve: Serve) -> int:
    link = GuardianLink()
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: link, sock=socket.socket(fileno=link_fd))
    try:
        welcome = await link.hello(os.getpid())
    except ConnectionError:
        return 1  # a guardian that ended before it needed us
    return await serve(link, dict(welcome.settings))


def _wrapped() -> Serve:
    from incumbent.agent.wrapping import serve_wrapped

    return serve_wrapped


def _agent() -> Serve:
    from incumbent.agent.agent import Agent, AgentSettings
    from incumbent.agent.control import ControlSocket
    from incumbent.agent.home import Home
    from incumbent.agent.host import Machine
    from incumbent.allowances import Allowances

    async def serve(link: GuardianLink, given: Mapping[str, Any]) -> int:
        say = Lines(2, "agent: ").news
        home = Home(Path(given["data"]))
        settings = AgentSettings.of(given)
        machine = Machine(
            home,
            str(given["node_id"]),
            os.environ,
            settings.hosts,
            say,
            Path(given["cgroups"]) if given.get("cgroups") else None,
            Allowances.from_json(given["allowances"]),
        )
        agent = Agent(
            settings,
            machine,
            link,
            clock=SYSTEM,
            rng=random.SystemRandom(),
            say=say,
        )
        control = ControlSocket(agent, home.socket)
        try:
            await control.open()
        except OSError as error:
            say(f"no control socket: {error}; `status` shows no times to fence here")
        with contextlib.closing(control):
            code = await agent.run()
        machine.forget_deadline()
        return code

    return serve
