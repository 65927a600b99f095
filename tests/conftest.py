"""What every test may ask for, and what a skip means.

Rule of this file: on a developer's machine a test that lacks something is skipped with the
reason; with CI=true nothing is skipped, so a skip is a failure.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import hypothesis
import pytest
from tests.apache import ApacheEnsemble, ApacheServer, apache_missing

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# Sessions of 1 to 40 seconds are granted: quick expiry, and still the usual longest one.
_QUICK: dict[str, Any] = {"tick_time": 500, "settings": {"maxSessionTimeout": 40000}}
_APACHE_FIXTURES = {"apache", "apache_ensemble", "_apache_ensemble"}


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs us in the background ignores SIGINT for us, and for all that we start;
    # programs under test are to take Ctrl-C as they do in a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


# A run in CI says something of the change, not of its luck: the same examples each time. What
# random ones find on developers' machines becomes an example of its own.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.load_profile("ci" if _in_ci() else "dev")


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """One standalone Apache ZooKeeper for the whole run; `apache.hosts` is where it listens.

    It is shared: a test makes its own root znode, and does not kill it (start an `ApacheServer`
    of your own for that).
    """
    with ApacheServer(tmp_path_factory.mktemp("apache"), **_QUICK) as server:
        yield server


@pytest.fixture(scope="session")
def _apache_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheEnsemble]:
    with ApacheEnsemble(tmp_path_factory.mktemp("ensemble"), **_QUICK) as ensemble:
        yield ensemble


@pytest.fixture
def apache_ensemble(_apache_ensemble: ApacheEnsemble) -> Iterator[ApacheEnsemble]:
    """Three Apache servers, started once per run; a test may kill, restart and freeze them."""
    _apache_ensemble.heal()
    yield _apache_ensemble
    _apache_ensemble.heal()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`apache` marks what needs the package; `soak` tests run only when asked for by name."""
    missing = apache_missing()
    for item in items:
        if _APACHE_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("apache")
        if missing and item.get_closest_marker("apache"):
            item.add_marker(pytest.mark.skip(reason=missing))
    if "soak" not in (config.option.markexpr or ""):
        soak = [item for item in items if item.get_closest_marker("soak")]
        if soak:
            config.hook.pytest_deselected(items=soak)
            items[:] = [item for item in items if item not in soak]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _no_skip_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _no_skip_in_ci((yield))


def _no_skip_in_ci(report: Report) -> Report:
    """Under CI=true a skip becomes a failure that says its reason; an expected failure stays."""
    if _in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: with CI=true nothing is skipped ({reason})"
    return report
