"""A seed is one exact run: in another process, under other hashes, on another Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation import town

_ROOT = Path(__file__).parents[2]


def pythons() -> list[str]:
    """This Python, and whatever other supported ones pyenv has here."""
    versions = Path.home() / ".pyenv" / "versions"
    found = sorted(str(p) for p in versions.glob("3.1[1-9].*/bin/python"))
    own = f"{sys.version_info.major}.{sys.version_info.minor}."
    return [sys.executable, *(p for p in found if own not in p)]


def trace(python: str, program: str, seed: int, hash_seed: str, *more: str) -> bytes:
    done = subprocess.run(
        [python, str(_ROOT / "tests" / "simulation" / program), str(seed), *more],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"},
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("python", pythons())
def test_a_seed_gives_byte_equal_traces_in_fresh_processes(python: str, seed: int) -> None:
    here = town.run(seed).trace().encode()

    first = trace(python, "town.py", seed, "1")
    second = trace(python, "town.py", seed, "4242")

    assert first == second == here
    assert len(first.splitlines()) > 300


def test_other_seeds_are_other_runs() -> None:
    assert len({town.run(seed).digest() for seed in range(5)}) == 5
