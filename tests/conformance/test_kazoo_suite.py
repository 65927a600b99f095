"""kazoo's own test suite, as it was shipped, with our server in place of Apache's."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.conformance.kazoo_suite.runner import ABSENT, NOT_YET, compare, run, table
from tests.peers import peers_missing

pytestmark = pytest.mark.skipif(peers_missing() is not None, reason=peers_missing() or "")


@pytest.mark.timeout(600)
def test_what_passes_on_apache_passes_here(capfd: pytest.CaptureFixture[str]) -> None:
    outcomes = run("ours", timeout=500)

    wrong = compare(outcomes)
    with capfd.disabled():
        print("\n" + table(outcomes))
    assert not wrong, "\n".join(wrong)
    assert len(outcomes) == 493, "kazoo's tests are not the ones that were counted"
    counts = Counter(outcomes.values())
    assert counts["passed"] + counts["moot"] == 493 - len(ABSENT) - len(NOT_YET)


@pytest.mark.soak
@pytest.mark.apache
def test_what_is_expected_of_apache_is_what_it_does() -> None:
    outcomes = run("apache", timeout=900)

    assert not compare(outcomes, "apache")
