"""What the agents of this machine have left to read."""

from __future__ import annotations

from pathlib import Path

from incumbent.agent.home import Home
from incumbent.cli import local


def test_the_components_that_have_logs_here_are_known_by_name(tmp_path: Path) -> None:
    logs = Home(tmp_path).logs
    logs.mkdir(parents=True)
    for name in ("web-0.log", "web-1.log", "web-0.log.1", "a-worker-0.log", "other.log"):
        (logs / name).touch()

    assert local.logged([tmp_path / "none", tmp_path]) == ["a-worker", "web"]
