"""Plays that hypothesis thinks up: each is played on both servers, and every line must be equal.

The long form: `pytest -m soak tests/conformance/test_differential.py`, PLAYS for how many.
"""

from __future__ import annotations

import itertools
import os
from difflib import unified_diff

import pytest
from hypothesis import HealthCheck, given, settings
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.plays import Step, direct, plays
from tests.conformance.stage import Stage

_NUMBERS = itertools.count()
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def compare(play: list[Step], ours: EmbeddedServer, apache: ApacheServer) -> None:
    root = f"/play{next(_NUMBERS)}"
    scripts = []
    for server in (apache, ours):
        stage = Stage(server.host, server.port, root)
        try:
            direct(stage, play)
        finally:
            stage.leave()
        scripts.append(stage.script())

    differences = list(unified_diff(*scripts, "Apache", "ours", n=2, lineterm=""))

    assert not differences, "\n".join(differences)


def test_both_servers_play_alike(ours: EmbeddedServer, apache: ApacheServer) -> None:
    @settings(max_examples=30, derandomize=True, deadline=None, suppress_health_check=_CALM)
    @given(plays(40))
    def alike(play: list[Step]) -> None:
        compare(play, ours, apache)

    alike()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_both_servers_play_alike_for_long(ours: EmbeddedServer, apache: ApacheServer) -> None:
    examples = int(os.environ.get("PLAYS", "2000"))

    @settings(max_examples=examples, deadline=None, suppress_health_check=_CALM)
    @given(plays(80))
    def alike(play: list[Step]) -> None:
        compare(play, ours, apache)

    alike()
