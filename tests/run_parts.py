"""`make test`: the parts of the test suite one after another, each with its time.

Rule of this file: every part runs even if one before it failed, and one failure fails the whole.
A test that fails is given one more try, alone, for much here waits for real processes on a
machine that has other work; whoever needed it is named. The tests of the promise itself, the
auditor's verdicts and the seeds have no second try: what they find is so, however rarely.

    python -m tests.run_parts                    all parts
    python -m tests.run_parts unit faults        only these
    python -m tests.run_parts e2e -- -k kill -x  with arguments for pytest

The simulated world has a time of its own, so that it may be as slow as it likes: it runs at the lowest
priority beside parts whose programs mostly wait, and is shown after them.

As root with apt, Debian's packages that tests need are installed first, and other people's
clients (see `tests.peers`) wherever npm is; tests that lack something are skipped with a reason.
With CI=true a skip is a failure (see conftest).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tests.peers import install_peers

__all__ = ["PARTS", "Part", "main"]

ROOT = Path(__file__).resolve().parent.parent
_PARALLEL = ("-n", "2")
_BY_FILE = (*_PARALLEL, "--dist", "loadfile")
"""For tests that mostly wait for processes: a file's tests one after another, two files at once."""
_FAILED, _NO_TESTS = 1, 5  # pytest's exit codes
_MOST_TRIED_AGAIN = 5
_IS_SO = ("NOT CLEAN", "overlap", "seed ")
"""What a failure says that has no second try."""
_PROMISE = ("test_kills", "test_hostile", "test_ensemble_lease", "test_mutants")
"""Modules in which every failure, a needless restart too, breaks what is promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the suite: what pytest is called with, how many seconds it may take, and with the
    beginning of which part, if that is run, it begins as well."""

    paths: tuple[str, ...]
    without: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    limit: float = 1200.0
    beside: str = ""


PARTS = {
    "unit": Part(
        paths=(
            "tests/unit",
            "tests/properties",
            "tests/test_architecture.py",
            "tests/test_exports.py",
            "tests/test_docs.py",
        ),
        options=_PARALLEL,
    ),
    "simulation": Part(
        paths=("tests/simulation",),
        options=(*_PARALLEL, "--timeout=600"),
        beside="faults",
        limit=2400.0,  # it gets what the others leave
    ),
    "conformance": Part(paths=("tests/conformance",), options=_BY_FILE),
    "faults": Part(paths=("tests/faults",), options=_BY_FILE),
    # Alone: beside another kill table an agent of S = 1 s starts too late to keep its session.
    "kills": Part(paths=("tests/e2e/test_kills.py",)),
    "e2e": Part(paths=("tests/e2e",), without=("tests/e2e/test_kills.py",), options=_BY_FILE),
}

# What shows that it is there (a command, or a path) → Debian's package.
_PACKAGES = {
    "java": "default-jre-headless",
    "/usr/share/java/zookeeper.jar": "zookeeper",
    "/usr/bin/systemd-analyze": "systemd",
    "redis-server": "redis-server",
    "/usr/lib/postgresql": "postgresql",
    "ip": "iproute2",
}

# And of these only the conformance tests: other people's clients.
_PEER_PACKAGES = {
    "/usr/lib/zookeeper/bin/cli_mt": "zookeeper-bin",
    "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/include/zookeeper/zookeeper.h": "libzookeeper-mt-dev",
    "javac": "default-jdk-headless",
    "/usr/share/java/curator-recipes.jar": "libcurator-recipes-java",
    "go": "golang-go",
    "/usr/share/gocode/src/github.com/samuel/go-zookeeper": "golang-github-samuel-go-zookeeper-dev",
    "node": "nodejs",
    "npm": "npm",
    "/usr/sbin/krb5kdc": "krb5-kdc",
    "/usr/sbin/kadmin.local": "krb5-admin-server",
    "/usr/lib/python3/dist-packages/gssapi": "python3-gssapi",
}


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of a part."""

    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""
    is_failure: bool = False


def main(argv: Sequence[str]) -> int:
    """Run the parts named (all, if none is). The exit code is 0 only if nothing failed."""
    names, extra = list(argv), []
    if "--" in names:
        at = names.index("--")
        names, extra = names[:at], names[at + 1 :]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    has_peers = not names or "conformance" in names
    install_packages({**_PACKAGES, **_PEER_PACKAGES} if has_peers else _PACKAGES)
    if has_peers:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # said; tests decide
            install_peers()
    began_at = time.monotonic()
    todo = [name for name in PARTS if name in (names or PARTS)]
    results = {name: Result(note="it did not come to its end", is_failure=True) for name in todo}
    with contextlib.ExitStack() as beside:
        for name in todo:
            if PARTS[name].beside not in todo:
                for each in (each for each in todo if PARTS[each].beside == name):
                    beside.enter_context(_beside(each, PARTS[each], extra, results))
                results[name] = run(name, PARTS[name], extra)
    return closing(results, time.monotonic() - began_at)


@contextlib.contextmanager
def _beside(
    name: str, part: Part, extra: Sequence[str], results: dict[str, Result]
) -> Iterator[None]:
    """A part that runs beside others; at the end it is waited for, and what it says is shown. Where
    the others are given up, so is it."""
    given_up = threading.Event()
    with tempfile.TemporaryFile("w+") as said:

        def runs() -> None:
            results[name] = run(name, part, extra, said, given_up)

        thread = threading.Thread(target=runs)
        thread.start()
        try:
            yield
        except BaseException:
            given_up.set()
            raise
        finally:
            thread.join()
            said.seek(0)
            shutil.copyfileobj(said, sys.stdout)


def run(
    name: str,
    part: Part,
    extra: Sequence[str],
    said: TextIO | None = None,
    given_up: threading.Event | None = None,
) -> Result:
    """One part, in a pytest of its own. A part without tests is said, and is no failure. `said`: where
    to, of one that is to give way to others, and to end when it is `given_up`."""
    paths = [path for path in part.paths if (ROOT / path).exists()]
    print(f"── {name}", file=said, flush=True)
    if not paths:
        return Result(note="no tests")
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        report = Path(scratch) / "report.xml"
        patience = [] if said is None else ["nice", "-n", "19"]
        command = [*patience, sys.executable, "-m", "pytest", "-rs", f"--junitxml={report}"]
        command += [f"--ignore={path}" for path in part.without]
        options = [*part.options]
        if options:  # each worker has a folder of its own: sockets' paths must stay short
            options.append(f"--basetemp={scratch}/t")
        code = _call([*command, *options, *paths, *extra], part.limit, said, given_up)
        result = _counted(report)
        failures = _failures(report)
        if code == _FAILED and _may_try_again(name, failures):
            again = [*command, "--last-failed", "--last-failed-no-failures=none", *paths, *extra]
            print(f"── {name}: once more, alone: {', '.join(failures)}", flush=True)
            if _call(again, part.limit) == 0:
                code = 0
                result.passed, result.failed = result.passed + result.failed, 0
                result.note = f"only at the second try: {', '.join(failures)}"
    result.seconds = time.monotonic() - began_at
    if code == _NO_TESTS:
        result.note = "no tests"
    elif code is None:
        result.note, result.is_failure = f"not done within {part.limit:g} s", True
    elif code != 0:
        result.note, result.is_failure = f"pytest ended with {code}", True
    print(f"── {name}: {result.seconds:.1f} s", file=said, flush=True)
    return result


def closing(results: dict[str, Result], seconds: float) -> int:
    """Print the table and the total of `seconds`; the exit code."""
    print("\n── time of each part")
    for name, result in results.items():
        counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
        note = f"  ({result.note})" if result.note else ""
        print(f"{name:12} {result.seconds:7.1f} s  {counts}{note}")
    print(f"{'total':12} {seconds:7.1f} s\n")
    passed, failed, skipped = (
        sum(getattr(result, count) for result in results.values())
        for count in ("passed", "failed", "skipped")
    )
    broken = [name for name, result in results.items() if result.is_failure]
    if broken:
        print(f"failed: {', '.join(broken)}")
        failed = max(failed, len(broken))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if broken or passed == 0 else 0


def install_packages(packages: Mapping[str, str]) -> None:
    """As root with apt: Debian's packages that are missing. A failure is said; tests decide."""
    missing = [
        package
        for shows, package in packages.items()
        if not (Path(shows).exists() if shows.startswith("/") else shutil.which(shows))
    ]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print(f"── installing {', '.join(missing)}", flush=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    with _no_services():
        for command in (["apt-get", "update", "-qq"], install):
            done = subprocess.run(
                command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if done.returncode != 0:
                print(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}", flush=True)
                return


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Debian starts a service when its package is installed; tests start their own."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def _call(
    command: Sequence[str],
    limit: float,
    said: TextIO | None = None,
    given_up: threading.Event | None = None,
) -> int | None:
    """The exit code of a command in a process group of its own; None if it took too long, or was
    given up."""
    ends = time.monotonic() + limit
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
    )
    try:
        while time.monotonic() < ends and not (given_up and given_up.is_set()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.5)
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _may_try_again(name: str, failures: Mapping[str, str]) -> bool:
    """Whether these failures may be the machine's."""
    signs = (*_IS_SO, *_PROMISE)
    is_so = any(sign in text for text in failures.values() for sign in signs)
    return name != "simulation" and not is_so and 0 < len(failures) <= _MOST_TRIED_AGAIN


def _failures(report: Path) -> dict[str, str]:
    """Each failed test with what it said."""
    found: dict[str, str] = {}
    if report.exists():
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            for trouble in (*case.iter("failure"), *case.iter("error")):
                said = f"{case.get('classname')}\n{trouble.get('message')}\n{trouble.text}"
                found[str(case.get("name"))] = said
    return found


def _counted(report: Path) -> Result:
    result = Result()
    if not report.exists():
        return result
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, failures, errors, skipped = (
            int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")
        )
        result.failed += failures + errors
        result.skipped += skipped
        result.passed += max(0, tests - failures - errors - skipped)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
