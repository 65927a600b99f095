"""Other people's software that our server is tried with, in an environment of its own.

Rule of this file: all of it is pinned, and it is installed once, below `.venv/peers`; our own
environment does not see it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["NODE_CLIENT", "PEERS", "PEERS_PYTHON", "install_peers", "peers_missing"]

_HERE = Path(__file__).resolve().parent
_REQUIREMENTS = _HERE / "peers.txt"
_NODE = ("node-zookeeper-client@1.1.3", "async@3.2.6", "underscore@1.13.8")

PEERS = _HERE.parent / ".venv" / "peers"
PEERS_PYTHON = PEERS / "bin" / "python"
NODE_CLIENT = PEERS / "node_modules" / "node-zookeeper-client"
_DONE = PEERS / ".installed"


def peers_missing() -> str | None:
    """Why those in Python cannot be used, or None if they can."""
    if _DONE.exists() and _DONE.read_text() == _REQUIREMENTS.read_text():
        return None
    return "no .venv/peers, or an old one: `python -m tests.peers` makes it"


def install_peers() -> None:
    """Make the environment unless it is there. Raises `CalledProcessError`."""
    if peers_missing() is not None:
        print("── installing other people's clients in .venv/peers", flush=True)
        shutil.rmtree(PEERS, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(PEERS))
        pip = (str(PEERS_PYTHON), "-m", "pip", "--disable-pip-version-check", "-qq")
        _run(*pip, "install", "-r", str(_REQUIREMENTS))
        _DONE.write_text(_REQUIREMENTS.read_text())
    if not NODE_CLIENT.exists() and shutil.which("npm") is not None:
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(PEERS), *_NODE)


def _run(*command: str) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env=environ,
        cwd=_HERE.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        print(f"{' '.join(command)} failed:\n{done.stdout}", flush=True)
        done.check_returncode()


if __name__ == "__main__":
    install_peers()
