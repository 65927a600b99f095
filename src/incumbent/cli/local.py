"""The agents on this machine: what they say on their control sockets, and their programs' logs.

Rule of this file: only the agent's own user reaches it, and an agent that does not answer is
no error: less is shown, then.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from incumbent.agent.home import Home
from incumbent.agent.tail import Tail
from incumbent.unix_socket import socket_name

__all__ = ["LOOK_EVERY", "ask", "ask_all", "find_logs", "logged", "show_logs", "while_unreachable"]

LOOK_EVERY = 0.1
"""Seconds between two looks at a followed file."""
_PATIENCE = 1.0


def ask(folder: Path, timeout: float = _PATIENCE) -> dict[str, Any] | None:
    """The status of the agent with this data directory; None if none answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(timeout)
        said = b""
        try:
            with socket_name(Home(folder).socket) as name:
                asking.connect(name)
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


def while_unreachable(folders: Iterable[Path]) -> list[str]:
    """What the agents on this machine know while ZooKeeper cannot be asked, a line for each."""
    lines = []
    for folder in folders:
        said = ask(folder)
        who = f"node {said['node']}" if said else f"the agent of {folder}"
        if said is None and not folder.exists():
            continue
        seats = (said or {}).get("seats", {}).items()
        runs = [name for name, seat in seats if seat.get("pid")]
        if runs:
            fence = said.get("time_to_fence") if said else None
            left = f", for {fence:.1f} s more without an answer" if fence is not None else ""
            parts = [f"{', '.join(runs)} may run here{left}"]
        elif said is not None:
            parts = ["nothing of it runs"]
        else:
            parts = ["does not answer"]
        if losses := Home(folder).losses():
            last = losses[-1]
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last.at))
            ran = f", with {', '.join(last.ran)}" if last.ran else ""
            parts.append(f"its connection was last lost for too long at {at}{ran}: {last.why}")
        lines.append(f"{who}, on this machine: {'; '.join(parts)}")
    return lines


def find_logs(folders: Sequence[Path], name: str, hook: str = "") -> dict[str, Path]:
    """Seat → log file, of a component (all its seats here) or of one seat ("web/1"); with `hook`
    that hook's.

    A seat that runs here and has written nothing yet has a file that does not exist yet.
    """
    for folder in folders:
        found = _written(folder, name, hook)
        for seat, said in ((ask(folder) or {}).get("seats", {})).items() if not hook else ():
            if name in (seat, seat.rpartition("/")[0]) and said.get("epoch") and said.get("log"):
                found.setdefault(seat, Path(said["log"]))
        if found:
            return dict(sorted(found.items()))
    return {}


def show_logs(
    logs: Mapping[str, Path],
    show: Callable[[str, str], None],
    *,
    count: int,
    follow: bool,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Call `show(seat, line)` for the last `count` lines of each; with `follow`, for ever on."""
    tails = {seat: Tail(path) for seat, path in logs.items()}
    for tail in tails.values():
        if not follow:
            tail.end_here()
        tail.begin_at_last(count)
    while True:
        for seat, tail in tails.items():
            for line in tail.read():
                show(seat, line)
        if not follow:
            return
        pause(LOOK_EVERY)


def logged(folders: Sequence[Path]) -> list[str]:
    """The components that have logs here, by name."""
    stems = (path.stem for folder in folders for path in Home(folder).logs.glob("*.log"))
    parts = (stem.rpartition("-") for stem in stems)
    return sorted({component for component, _, digits in parts if digits.isdigit()})


def _written(folder: Path, name: str, hook: str) -> dict[str, Path]:
    component, slash, number = name.rpartition("/") if "/" in name else (name, "", "")
    suffix = f"!{hook}" if hook else ""
    found = {}
    for path in Home(folder).logs.glob(f"{component}-*{suffix}.log"):
        stem, _, digits = path.stem.removesuffix(suffix).rpartition("-")
        if digits.isdigit() and stem == component and (not slash or digits == number):
            found[f"{stem}/{digits}"] = path
    return found
