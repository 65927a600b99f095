"""What a wrapped command is promised with a session's times, and the exit codes that it gives."""

from __future__ import annotations

import pytest

from incumbent.agent.wrapped_settings import WrappedSettings, exit_code, fitting
from incumbent.errors import NumbersDontFit
from incumbent.guardian.messages import Exited


@pytest.mark.parametrize(
    ("session", "tick", "grace"),
    [
        (10.0, 0.0, 3.0),  # standalone: the default
        (10.0, None, 2.4),  # unknown tick: what is left
        (30.0, 2.0, 10.0),
        (30.0, None, 8.2),
        (1.0, 0.0, 0.3),
    ],
)
def test_without_a_wish_the_grace_is_what_fits_and_at_most_the_default(
    session: float, tick: float | None, grace: float
) -> None:
    assert fitting(session, tick, None).stop_grace == pytest.approx(grace)


def test_a_grace_that_was_asked_for_is_kept() -> None:
    assert fitting(10.0, 0.0, 4.2).stop_grace == 4.2


def test_a_grace_that_does_not_fit_is_refused_with_the_most_that_would() -> None:
    with pytest.raises(NumbersDontFit, match=r"at most 4\.4 s"):
        fitting(10.0, 0.0, 6.0)


@pytest.mark.parametrize(
    ("code", "signal", "expected"), [(0, None, 0), (7, None, 7), (None, 9, 137), (None, 15, 143)]
)
def test_exit_codes_are_a_shells(code: int | None, signal: int | None, expected: int) -> None:
    exited = Exited(seat="/e", epoch=1, code=code, signal=signal, uptime=1.0, left=0)

    assert exit_code(exited) == expected


def test_settings_come_out_of_welcome_with_whatever_else_is_there() -> None:
    given = {"mode": "elect", "path": "/e", "hosts": "h:1", "name": "n", "session_timeout": 10.0}

    settings = WrappedSettings.of({**given, "command": ["true"], "cwd": "/"})

    assert (settings.path, settings.command, settings.stop_grace) == ("/e", ["true"], None)
