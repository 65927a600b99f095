"""The agents on this machine: what they say on their control sockets, and their programs' logs.

Rule of this file: only the agent's own user reaches it, and an agent that does not answer is
no error: less is shown, then.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from incumbent.agent.home import Home

__all__ = ["ask", "ask_all", "find_logs", "logged"]

_PATIENCE = 1.0


def ask(folder: Path, timeout: float = _PATIENCE) -> dict[str, Any] | None:
    """The status of the agent with this data directory; None if none answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(timeout)
        said = b""
        try:
            asking.connect(str(Home(folder).socket))
            asking.sendall(b'{"ask": "status"}\n')
            while part := asking.recv(65536):
                said += part
            answer = json.loads(said)
        except (OSError, ValueError):
            return None
    return answer if isinstance(answer, dict) and "seats" in answer else None


def ask_all(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """The answers of those that answer."""
    return [answer for folder in folders if (answer := ask(folder)) is not None]


def find_logs(folders: Sequence[Path], name: str) -> dict[str, Path]:
    """Seat → log file, of a component (all its seats here) or of one seat ("web/1").

    A seat that runs here and has written nothing yet has a file that does not exist yet.
    """
    for folder in folders:
        found = _written(folder, name)
        for seat, said in ((ask(folder) or {}).get("seats", {})).items():
            if name in (seat, seat.rpartition("/")[0]) and said.get("epoch") and said.get("log"):
                found.setdefault(seat, Path(said["log"]))
        if found:
            return dict(sorted(found.items()))
    return {}


def logged(folders: Sequence[Path]) -> list[str]:
    """The components that have logs here, by name."""
    stems = (path.stem for folder in folders for path in Home(folder).logs.glob("*.log"))
    parts = (stem.rpartition("-") for stem in stems)
    return sorted({component for component, _, digits in parts if digits.isdigit()})


def _written(folder: Path, name: str) -> dict[str, Path]:
    component, slash, number = name.rpartition("/")
    found = {}
    for path in Home(folder).logs.glob(f"{component}-{number}.log" if slash else f"{name}-*.log"):
        stem, _, digits = path.stem.rpartition("-")
        if digits.isdigit() and stem == (component if slash else name):
            found[f"{stem}/{digits}"] = path
    return found
