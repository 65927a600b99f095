"""The settlement example with real processes: judged by its accountant, as a user would run it.

The published way must be caught billing twice, or the accountant proves nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.postgres import postgres_missing

ROOT = Path(__file__).parents[2]


def settlement(*arguments: object, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.settlement", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_the_published_way_is_caught_billing_twice() -> None:
    done = settlement("--naive", "--calm", "--orders", 300, timeout=110)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "orders charged more than once" in done.stdout


@pytest.mark.timeout(240)
def test_every_order_is_charged_once_and_closed_whatever_is_killed() -> None:
    """Four servers with four threads, killed and frozen; ZooKeeper killed; the gateway fails. An order
    that failed six times is tried again a minute later.
    """
    done = settlement("--orders", 5000, "--timeout", 200, timeout=230)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every order charged once and closed" in done.stdout
    assert "killed" in done.stdout and "frozen" in done.stdout


@pytest.mark.apache
@pytest.mark.skipif(postgres_missing() is not None, reason=str(postgres_missing()))
def test_the_same_on_postgresql_and_an_apache_ensemble_which_are_killed_too() -> None:
    done = settlement(
        "--postgres", "--ensemble", "--orders", 1000, "--every", 1, "--timeout", 100, timeout=115
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every order charged once and closed" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("where", [(), ("--postgres", "--ensemble")], ids=["small", "large"])
def test_a_hundred_thousand_orders(where: tuple[str, ...]) -> None:
    done = settlement("--orders", 100_000, *where, "--timeout", 7000, timeout=7200)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every order charged once and closed" in done.stdout
