"""The `incumbent` script: which command imports what, and what is said without the extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from incumbent.cli.dispatch import LASTING

_RUN = """
import sys
{before}
from incumbent.cli.dispatch import dispatch
try:
    code = dispatch({argv!r})
except SystemExit as stop:
    code = stop.code
{after}
sys.exit(code)
"""
_NO_EXTRA = "sys.modules['typer'] = sys.modules['msgspec'] = sys.modules['rich'] = None"
_SHOW = "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"


def run(*argv: str, before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
    code = _RUN.format(argv=list(argv), before=before, after=after)
    return subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("name", LASTING)
def test_what_stays_running_starts_without_typer_and_rich(name: str) -> None:
    done = run(name, "--help", after=_SHOW)

    assert done.returncode == 0
    assert f"incumbent {name}" in done.stdout
    assert "'typer'" not in done.stderr
    assert "'rich'" not in done.stderr


def test_what_becomes_a_guardian_has_no_loop() -> None:
    done = run("--version", after=f"import incumbent.cli, incumbent.cli.lock; {_SHOW}")

    assert "'incumbent'" in done.stderr
    assert "'asyncio'" not in done.stderr


def test_up_goes_on_without_typer_and_rich() -> None:
    done = run("--version", after=f"import incumbent.cli.running; {_SHOW}")

    assert "'msgspec'" in done.stderr
    assert "'typer'" not in done.stderr
    assert "'rich'" not in done.stderr


@pytest.mark.parametrize("name", ["agent", "elect", "lock", "once"])
def test_a_guardian_to_be_has_no_event_loop(name: str) -> None:
    done = run(name, "--help", after=_SHOW)

    assert "'asyncio'" not in done.stderr


def test_the_version() -> None:
    done = run("--version")

    assert done.stdout.startswith("incumbent ")


@pytest.mark.parametrize("argv", [["--help"], ["-h"], []])
def test_help_lists_every_command(argv: list[str]) -> None:
    done = run(*argv)

    assert done.returncode == 0
    for name in (*LASTING, "status", "apply", "remove", "logs", "node", "zk", "queue", "barrier"):
        assert f"\n  {name} " in done.stdout


def test_help_through_the_list_reaches_a_lasting_command() -> None:
    done = run("server", "--help")

    assert "--listen" in done.stdout


@pytest.mark.parametrize("name", ["status", "apply", "up", "agent", "elect", "once", "work"])
def test_without_the_extra_a_command_says_what_to_install(name: str) -> None:
    done = run(name, before=_NO_EXTRA)

    assert done.returncode == (125 if name in ("once", "work") else 2)  # 2 may be its COMMAND's
    assert done.stderr == (
        f"incumbent: `incumbent {name}` needs packages that are not installed: "
        "pip install 'incumbent[agent]'\n"
    )


def test_without_the_extra_there_is_a_server_and_help() -> None:
    assert run("server", "--help", before=_NO_EXTRA).returncode == 0

    done = run("--help", before=_NO_EXTRA)

    assert done.returncode == 0
    assert "server" in done.stdout
    assert "pip install 'incumbent[agent]'" in done.stdout


@pytest.mark.parametrize(
    ("argv", "message", "command"),
    [
        (["statsu"], "no such command 'statsu'", ""),
        (["status", "--colour"], "no such option: --colour", " status"),
        (["apply"], "missing argument 'FILE'", " apply"),
        (["node", "confirm"], "no such command 'confirm'", " node"),
        (["zk", "cat"], "no such command 'cat'", " zk"),
        (
            ["zk", "--zookeeper", "h:1", "ls"],
            "--zookeeper (it goes behind a command, as in `incumbent zk ls --zookeeper …`)",
            " zk",
        ),
        (["zk", "create", "/a", "--ttl", "0"], "--ttl", " zk create"),
        (["barrier", "meet", "x"], "missing option '--count'", " barrier meet"),
        (["status", "--output", "xml"], "'xml'", " status"),
        (
            ["config", "set", "n", "-5"],
            "before a value that begins with -, write --",
            " config set",
        ),
        (["up", "--colour"], "unrecognized arguments: --colour", " up"),
        (["agent", "--colour"], "unrecognized arguments: --colour", " agent"),
        (["server", "--dta", "x"], "unrecognized arguments: --dta x", " server"),
        (
            ["server", "backup", "--dta", "x"],
            "the following arguments are required: --data",
            " server backup",
        ),
        (["demo", "--colour"], "unrecognized arguments: --colour", " demo"),
        (["elect"], "required: PATH", " elect"),
    ],
)
def test_a_wrong_call_is_one_line_and_names_the_help_of_that_command(
    argv: list[str], message: str, command: str
) -> None:
    done = run(*argv)

    assert done.returncode == 2
    assert message in done.stderr
    assert f" `incumbent{command} --help` shows what there is\n" in done.stderr
    assert "?;" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_value_that_is_wrong_for_its_option_is_not_said_to_need_dashes() -> None:
    done = run("zk", "create", "/a", "--ttl", "-5")

    assert done.returncode == 2 and "write --" not in done.stderr


@pytest.mark.parametrize("code", ["256", "-1", "yes"])
def test_an_exit_code_that_there_cannot_be_is_refused_in_one_line(code: str) -> None:
    done = run("once", "report", f"--if-done={code}", "--", "true")

    assert done.returncode == 125
    assert f"expected an exit code from 0 to 255, got '{code}'" in done.stderr
    assert len(done.stderr) < 200


@pytest.mark.parametrize("group", ["", "zk", "queue", "barrier", "node"])
def test_no_line_in_a_list_of_commands_is_cut_short(group: str) -> None:
    done = run(*group.split(), "--help", before="import os; os.environ['COLUMNS'] = '80'")

    assert "\nCommands:\n" in done.stdout
    assert "...\n" not in done.stdout.partition("\nCommands:\n")[2]


def test_no_zookeeper_lists_every_place_looked_at() -> None:
    done = run("status", before="import os; os.environ['HOME'] = '/nonexistent'; os.chdir('/')")

    assert done.returncode == 2
    assert "INCUMBENT_ZOOKEEPER" in done.stderr
    assert "/etc/incumbent/agent.toml" in done.stderr


def test_an_unreachable_zookeeper_is_exit_code_3() -> None:
    before = "import incumbent.cli.cluster as c; c.CONNECT_TIME = 0.2"

    done = run("status", "--zookeeper", "127.0.0.1:1", before=before)

    assert done.returncode == 3
    assert "127.0.0.1:1: connection refused" in done.stderr
    assert "Traceback" not in done.stderr
