"""The agent's process, as a guardian starts it: `python -m incumbent.agent --link-fd N`.

Rule of this file: the rim. Signals for "stop" are the guardian's to get; while the guardian
lives we ignore them, and when it is dead we leave as soon as everything is proven dead.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from incumbent.agent.agent import Agent, AgentSettings
from incumbent.agent.control import ControlSocket
from incumbent.agent.home import Home
from incumbent.agent.host import Machine
from incumbent.agent.link import GuardianLink
from incumbent.clock import SYSTEM

__all__ = ["main", "settings_from"]


def settings_from(given: Mapping[str, Any]) -> AgentSettings:
    """The agent's settings out of WELCOME's, which has other keys too."""
    known = {key: given[key] for key in AgentSettings.__dataclass_fields__ if key in given}
    return AgentSettings(**known)


def say(text: str) -> None:
    """One line for people, on stderr."""
    stamp = time.strftime("%H:%M:%S", time.localtime())
    sys.stderr.write(f"{stamp} agent: {text}\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="incumbent-agent")
    parser.add_argument("--link-fd", type=int, required=True)
    options = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    return asyncio.run(_serve(options.link_fd))


async def _serve(link_fd: int) -> int:
    loop = asyncio.get_running_loop()
    link = GuardianLink()
    await loop.create_connection(lambda: link, sock=socket.socket(fileno=link_fd))
    try:
        welcome = await link.hello(os.getpid())
    except ConnectionError as error:
        say(str(error))
        return 1
    given = dict(welcome.settings)
    if given.get("mode") == "elect":
        from incumbent.agent.elect import serve_elect

        return await serve_elect(link, given)
    home = Home(Path(given["data"]))
    agent = Agent(
        settings_from(given),
        Machine(home, os.environ, say),
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
    try:
        return await agent.run()
    finally:
        control.close()
