"""kazoo's own tests against a server of ours, or Apache's, and the comparison of the two.

    python -m tests.conformance.kazoo_suite.runner                ours
    python -m tests.conformance.kazoo_suite.runner apache         one Apache server
    python -m tests.conformance.kazoo_suite.runner ours -- -x -k lock      arguments for pytest

Rule of this file: kazoo's tests are run as they were shipped, all of them. What cannot pass on
one server stands in `ABSENT`, what Apache's does not pass as it is started here in `ONLY_OURS`,
what ours does not pass yet in `NOT_YET`; each with its reason, and each is checked both ways.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers import PEERS_PYTHON, peers_missing

__all__ = [
    "ABSENT",
    "NOT_YET",
    "NO_LISTENER",
    "ONLY_OURS",
    "compare",
    "main",
    "run",
    "table",
    "unexpected",
]

ROOT = Path(__file__).resolve().parents[3]

_THREE = "needs three servers"
_CONFIG = "reconfigures an ensemble"
_KERBEROS = "needs Kerberos"
_SASL = "Apache's needs a JAAS file"
_TLS = "Apache's needs a Java key store, and Netty"

ABSENT = {
    "test_build.py::TestBuildEnvironment::test_zookeeper_version": "looks at kazoo's own CI",
    "test_client.py::TestClient::test_update_host_list": _THREE,
    "test_eventlet_handler.py::TestEventletClient::test_update_host_list": _THREE,
    "test_gevent_handler.py::TestGeventClient::test_update_host_list": _THREE,
    "test_connection.py::TestReadOnlyMode::test_read_only": _THREE,
    "test_client.py::TestReconfig::test_add_remove_observer": _CONFIG,
    "test_client.py::TestReconfig::test_bad_input": _CONFIG,
    "test_client.py::TestReconfig::test_no_super_auth": _CONFIG,
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_connect_gssapi_auth": _KERBEROS,
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_invalid_gssapi_auth": _KERBEROS,
}
"""Pass on no single server, Apache's or ours."""

ONLY_OURS = {
    "test_client.py::TestSSLClient::test_create": _TLS,
    "test_sasl.py::TestLegacySASLDigestAuthentication::test_connect_sasl_auth": _SASL,
    "test_sasl.py::TestSASLDigestAuthentication::test_connect_sasl_auth": _SASL,
}
"""Pass on ours, and on no Apache server without more set-up than `apache.py` does."""

NOT_YET: dict[str, str] = {}
"""Pass on Apache's and not on ours. One that passes after all makes the test fail."""

NO_LISTENER = "test_utils.py::TestCreateTCPConnection::test_slow_connect"
"""Passes if nothing listens on 127.0.0.1:2181, whatever server is tested; else it is moot."""

_USERS = "super:super_secret\njaasuser:jaas_password\n"  # what kazoo's harness gives to Apache's
_SUPER = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

Outcomes = dict[str, str]
"""Test → passed, failed, skipped, or moot."""


def run(server: str = "ours", extra: Sequence[str] = (), *, timeout: float = 900.0) -> Outcomes:
    """Run them all; `server` is `ours` or `apache`. Raises `TimeoutExpired`."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        users = folder / "users"
        users.touch(mode=0o600)
        users.write_text(_USERS)
        environ = {
            key: value
            for key, value in os.environ.items()
            if key != "CI" and not key.startswith(("ZOOKEEPER_", "PYTEST_"))
        }
        environ |= {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",  # this copy of ours
            "KAZOO_SUITE_COMMAND": json.dumps(_ours(users) if server == "ours" else _apache()),
        }
        report = folder / "report.xml"
        command = [str(PEERS_PYTHON), "-m", "pytest", "-q", "-rfE", "--tb=short"]
        command += ["-p", "tests.conformance.kazoo_suite.standin", "-p", "no:cacheprovider"]
        command += ["--disable-warnings", "--timeout=60", f"--junitxml={report}"]
        command += ["--pyargs", "kazoo.tests", *extra]
        _call([*command, "-n", "4", "--dist", "loadscope"], folder, environ, timeout)
        outcomes = _outcomes(report)
        if outcomes.get(NO_LISTENER) == "failed" and _is_somebody_listening():
            outcomes[NO_LISTENER] = "moot"
        again = unexpected(outcomes, server)
        if again:  # many of them go by short times: once more, with the machine to themselves
            print(f"once more, alone: {', '.join(again)}", flush=True)
            names = " or ".join(test.rpartition("::")[2] for test in again)
            _call([*command, "-k", names], folder, environ, timeout)
            outcomes |= {test: _outcomes(report)[test] for test in again}
        return outcomes


def unexpected(outcomes: Mapping[str, str], server: str = "ours") -> list[str]:
    """What should have passed and did not."""
    excused = ABSENT | (NOT_YET if server == "ours" else ONLY_OURS)
    fine = ("passed", "moot")
    return [test for test, how in outcomes.items() if how not in fine and test not in excused]


def compare(outcomes: Mapping[str, str], server: str = "ours") -> list[str]:
    """What is not as it should be, a line each."""
    excused = ABSENT | (NOT_YET if server == "ours" else ONLY_OURS)
    lines = [f"{test}: {outcomes[test]}" for test in unexpected(outcomes, server)]
    lines += [
        f"{test}: passes, and stands in a list of what does not ({excused[test]})"
        for test, outcome in outcomes.items()
        if outcome == "passed" and test in excused
    ]
    return lines + [f"{test}: is no test any more" for test in excused if test not in outcomes]


def table(outcomes: Mapping[str, str]) -> str:
    """The count beside Apache's."""
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    beyond = sum(outcomes.get(test) == "passed" for test in ONLY_OURS)
    apache = len(outcomes) - len(ABSENT) - len(ONLY_OURS)
    moot = "\nmoot here                 1, somebody listens on port 2181"
    return (
        f"kazoo's tests             {len(outcomes)}\n"
        f"pass on one Apache server {apache}\n"
        f"pass here                 {passed}, of these {beyond} of the {len(ONLY_OURS)} that "
        "need TLS or SASL\n"
        f"for no single server      {len(ABSENT)}"
        f"{moot if 'moot' in outcomes.values() else ''}"
    )


def main(argv: Sequence[str]) -> int:
    """Run, print the comparison; 0 if all is as it should be."""
    names, extra = list(argv), []
    if "--" in names:
        names, extra = names[: names.index("--")], names[names.index("--") + 1 :]
    server = names[0] if names else "ours"
    missing = peers_missing()
    if server not in ("ours", "apache") or missing:
        print(missing or f"no server {server!r}; there are ours and apache", file=sys.stderr)
        return 2
    outcomes = run(server, extra)
    wrong = compare(outcomes, server)
    print(table(outcomes))
    print("\n".join(wrong))
    return 1 if wrong else 0


def _ours(users: Path) -> list[str]:
    command = [sys.executable, "-m", "incumbent.server", "--data", "{data}"]
    command += ["--parent-death", "{parent}"]
    command += ["--listen", "127.0.0.1:{port}", "--tls-listen", "127.0.0.1:{secure}"]
    for name, file in (("cert", "server.pem"), ("key", "server.key"), ("ca", "ca.pem")):
        command += [f"--tls-{name}", f"{{certificates}}/{file}"]
    command += ["--sasl-users", str(users), "--super-digest", _SUPER]
    return [*command, "--words", "*", "--max-connections", "0"]


def _apache() -> list[str]:
    return [sys.executable, "-m", "tests.conformance.kazoo_suite.apache", "{port}", "{data}"]


def _call(command: Sequence[str], cwd: Path, environ: Mapping[str, str], limit: float) -> None:
    """In a process group of its own, which is gone afterwards."""
    process = subprocess.Popen(
        command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        process.wait(limit)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_somebody_listening() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 2181), 1.0):
        return True
    return False


def _outcomes(report: Path) -> Outcomes:
    outcomes: Outcomes = {}
    if not report.exists():
        return outcomes
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module, _, scope = case.get("classname", "").removeprefix("kazoo.tests.").partition(".")
        test = "::".join(filter(None, (f"{module}.py", scope, case.get("name", ""))))
        bad = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
        outcome = "skipped" if bad == ["skipped"] else "failed" if bad else "passed"
        if outcomes.get(test) != "failed":
            outcomes[test] = outcome
    return outcomes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
