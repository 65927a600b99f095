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
from typing import TYPE_CHECKING, Any, TypeAlias

from incumbent.agent.lines import Lines
from incumbent.agent.link import GuardianLink
from incumbent.clock import SYSTEM
from incumbent.guardian import kernel

if TYPE_CHECKING:
    from incumbent.agent.agent import Agent
    from incumbent.agent.home import Home

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
        serving = _serve_logs(agent, home, given, say)
        control = ControlSocket(agent, home.socket)
        try:
            await control.open()
        except OSError as error:
            say(f"no control socket: {error}; `status` shows no times to fence here")
        with contextlib.closing(control):
            code = await agent.run()
        for task in serving:
            task.cancel()
        machine.forget_deadline()
        return code

    return serve


def _serve_logs(
    agent: Agent, home: Home, given: Mapping[str, Any], say: Callable[[str], None]
) -> list[asyncio.Task[None]]:
    """Where the node's own file says so."""
    if not given.get("log_service"):
        return []
    from incumbent.agent.serving import LogServer
    from incumbent.log_service import LogService

    known: Sequence[str] = ()

    def operators() -> Sequence[str]:
        nonlocal known
        said = agent.term.admission.operators if agent.term else None
        known = known if said is None else said
        return known

    server = LogServer(
        LogService.from_json(given["log_service"]),
        agent.settings.node,
        find=home.log_of,
        begun=agent.custody.begun,
        operators=operators,
        nonce=agent.nonce,
        say=say,
    )
    return [asyncio.get_running_loop().create_task(server.run())]
