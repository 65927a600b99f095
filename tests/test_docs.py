"""The documents say what is so: what they show runs, and what there is stands in them."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.children import ends_with_us
from tests.e2e.library_server import ServerProcess

from incumbent import errors, settings
from incumbent.agent import exit_codes
from incumbent.cli import exits
from incumbent.cli.dispatch import dispatch
from incumbent.guardian import messages
from incumbent.guardian.containment import probe
from incumbent.lease import Numbers
from incumbent.spec import Spec, parse_specs

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
COMMANDS = (
    *(
        "up",
        "init",
        "agent",
        "apply",
        "remove",
        "stop",
        "start",
        "restart",
        "signal",
        "move",
        "freeze",
        "unfreeze",
        "retry",
        "pause",
        "resume",
        "status",
        "logs",
    ),
    *("node list", "node confirm-dead"),
    *("config get", "config set", "config edit", "config history", "config revert"),
    *(
        "elect",
        "lock",
        "once",
        "server",
        "server backup",
        "server restore",
        "demo",
        "doctor",
        "why",
    ),
    *("work run", "work parked", "work retry", "work done"),
    *("queue put", "queue take"),
    *("barrier meet", "barrier up", "barrier down", "barrier wait"),
    *("zk ls", "zk tree", "zk get", "zk set", "zk create"),
    *("zk rm", "zk stat", "zk watch", "zk acl", "zk cp"),
)


def text(name: str) -> str:
    return (ROOT / name).read_text()


class Block(NamedTuple):
    file: str
    line: int
    kind: str
    code: str


def blocks(kind: str) -> list[Block]:
    """The fenced blocks of a kind in all documents."""
    found = []
    for path in FILES:
        name = str(path.relative_to(ROOT))
        for match in re.finditer(r"^```([^\n]+)\n(.*?)^```$", path.read_text(), re.M | re.S):
            line = path.read_text()[: match.start()].count("\n") + 1
            if match[1] == kind:
                found.append(Block(name, line, match[1], match[2]))
    return found


def named(block: Block) -> str:
    return f"{block.file}:{block.line}"


# ── code runs


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("docs")) as server:
        yield server.hosts


PROGRAMS = [b for b in blocks("python") if "\ndef test_" not in b.code]
TESTS = [b for b in blocks("python") if "\ndef test_" in b.code]


@pytest.mark.parametrize("block", PROGRAMS, ids=named)
def test_a_program_in_the_documents_runs(
    block: Block,
    hosts: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = block.code.replace("127.0.0.1:2181", hosts)
    monkeypatch.chdir(tmp_path)

    exec(compile(code, named(block), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", TESTS, ids=named)
def test_a_test_in_the_documents_passes(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(block.code)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", blocks("toml"), ids=named)
def test_a_file_in_the_documents_is_right(block: Block, tmp_path: Path) -> None:
    if "[component." in block.code:
        parse_specs(block.code.encode(), named(block), folder=tmp_path)
    file = tmp_path / "incumbent.toml"
    file.write_text(block.code)
    settings.resolve({}, environ={}, folder=tmp_path, system=tmp_path / "none")


# ── the tour is played


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, widths, a port that was taken."""
    return " ".join(re.sub(r"\d+", "0", re.sub(r" \(port \d+ is taken\)", "", line)).split())


def tour() -> list[tuple[str, list[str]]]:
    """Each command of the README's tour, with the lines that it shows."""
    (block,) = blocks("console tour")
    steps: list[tuple[str, list[str]]] = []
    for line in block.code.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


_SCRIPT = """\
#!{python}
import ctypes
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: the shell's end is ours
from incumbent.cli import main
main()
"""


class Shell:
    """bash, told one command at a time. Everything that it started ends with it."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        self._carried_out = folder / "carried-out"
        self._told = 0
        clean = {key: v for key, v in os.environ.items() if not key.startswith("INCUMBENT_")}
        script = folder / "incumbent"
        script.write_text(_SCRIPT.format(python=sys.executable))
        script.chmod(0o755)
        run = folder / "run"
        run.mkdir()
        env = {**clean, "PATH": f"{folder}:{os.environ['PATH']}", "INCUMBENT_NODE": "laptop"}
        env |= {"XDG_RUNTIME_DIR": str(run), "COLUMNS": "200"}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                ["bash"],
                cwd=folder,
                env=env,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                preexec_fn=ends_with_us(),
            )

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        """Killed, `up` leaves nothing behind: its guardian and its server stop by themselves."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self._told += 1
        self.process.stdin.write(f"{command}\necho {self._told} > {self._carried_out}\n")
        self.process.stdin.flush()

    @property
    def is_idle(self) -> bool:
        """Whether all that it was told is carried out, or goes on in the background."""
        said = self._carried_out.read_text() if self._carried_out.exists() else ""
        return said.strip() == str(self._told)

    def lines(self, since: int) -> list[str]:
        return self.output.read_text()[since:].splitlines()


@pytest.mark.skipif(bool(probe()["sealed"]), reason="the tour shows sealed programs")
def test_the_tour_shows_what_happens(tmp_path: Path) -> None:
    steps = tour()
    (tmp_path / "incumbent.toml").write_text("\n".join(steps[0][1]) + "\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = (tmp_path / "incumbent.toml").read_text()
    (tmp_path / "incumbent.toml").write_text(file.replace("8000", str(port)))

    with Shell(tmp_path) as shell:
        for command, shown in steps:
            follow(shell, command, [shape(line) for line in shown])


def follow(shell: Shell, command: str, expected: list[str]) -> None:
    """Give a command and wait for what it shows; what only looks is asked again until then."""
    since, until = len(shell.output.read_text()), time.monotonic() + 60
    looks = command.startswith("incumbent ") and not command.endswith("&")
    shell.tell(command)
    while missing := [line for line in expected if line not in map(shape, shell.lines(since))]:
        assert time.monotonic() < until, f"{command}: no {missing} in {shell.lines(since)}"
        if looks and shell.is_idle:
            shell.tell(command)
        time.sleep(0.1)


# ── commands


def help_of(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        dispatch([*command.split(), "--help"])
    return out.getvalue()


HELP = {command: help_of(command) for command in COMMANDS}


def options(shown: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help"}


def section(file: str, title: str) -> str:
    """What stands under a heading, up to the next one of its rank."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text(file), re.M | re.S)
    assert match, f"{file} has no section {title}"
    return match[1]


def test_every_command_is_listed_here() -> None:
    listed = set(re.findall(r"^  ([a-z]+)  ", help_of(""), re.M))

    assert listed == {command.split()[0] for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_documented_with_exactly_its_options(command: str) -> None:
    here = section("docs/cli.md", f"incumbent {command}")
    own = options(re.sub(r"\A.*?(?=^options:|^Options:)", "", HELP[command], flags=re.M | re.S))

    assert options(here) - {"--node"} == own - {"--node"}
    assert f"`incumbent {command}" in here


@pytest.mark.parametrize("name", ["DONE", "NO", "USAGE", "UNREACHABLE", "TIMED_OUT"])
def test_every_exit_code_is_documented(name: str) -> None:
    assert re.search(rf"^\| {getattr(exits, name)} \|", text("docs/cli.md"), re.M)


@pytest.mark.parametrize("name", exit_codes.__all__)
def test_every_exit_code_of_a_wrapper_is_documented(name: str) -> None:
    row = rf"^\| {getattr(exit_codes, name)} \|"

    assert re.search(row, section("docs/cli.md", "incumbent lock"), re.M)
    assert str(getattr(exit_codes, name)) in re.sub(r".*exit codes:", "", HELP["once"], flags=re.S)


CALLS = [
    (named(block), line)
    for kind in ("console", "console tour")
    for block in blocks(kind)
    for line in block.code.splitlines()
    if re.match(r"\S*\$ incumbent ", line)
]


@pytest.mark.parametrize(
    ("place", "line"), CALLS, ids=[f"{p}-{n}" for n, (p, _) in enumerate(CALLS)]
)
def test_a_command_that_is_shown_exists(place: str, line: str) -> None:
    words = line.split("#")[0].split(" -- ")[0].split()[2:]
    name = next(c for c in sorted(COMMANDS, reverse=True) if c.split() == words[: len(c.split())])

    assert options(" ".join(words)) <= options(HELP[name])


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.M))

    for path in FILES:
        assert set(re.findall(r"`make ([a-z]+)|^\$ make ([a-z]+)", path.read_text(), re.M)) <= {
            pair for target in targets for pair in ((target, ""), ("", target))
        }, path


# ── settings, components, errors


@pytest.mark.parametrize("key", settings.KEYS)
def test_every_setting_is_documented(key: str) -> None:
    row = f"| `{key}` | `--{key.replace('_', '-')}` | `INCUMBENT_{key.upper()}` |"

    assert row in text("docs/settings.md")
    assert f"--{key.replace('_', '-')}" in HELP["agent"]


def test_the_documented_places_are_those_that_are_looked_at() -> None:
    looked = [place for place, _ in settings.resolve({}, environ={}, uid=1000).looked]
    documented = section_list("docs/settings.md")

    assert len(looked) == len(documented)
    for place, line in zip(looked, documented, strict=True):
        assert any(word in line for word in words_for(place)), (place, line)


def section_list(file: str) -> list[str]:
    """The numbered list, its default left out, and item 4 as the three places that it is."""
    items = re.findall(r"^\d\. (.*?)(?=^\d\. |^$)", text(file), re.M | re.S)[:-1]
    return [*items[:3], *[items[3]] * 3, *items[4:]]


def words_for(place: str) -> tuple[str, ...]:
    known = {"--zookeeper": "flag", "INCUMBENT_ZOOKEEPER": "environment"}
    return (known.get(place, Path(place).name), "running `incumbent up`" if "run" in place else "-")


@pytest.mark.parametrize("option", sorted(options(HELP["server"]) - {"--config"}))
def test_every_setting_of_the_server_is_documented(option: str) -> None:
    if option not in ("--listen-fd", "--ready-fd", "--parent-death", "--until-fd"):
        assert f"`{option}`" in section("docs/settings.md", "The embedded server")


def test_every_component_key_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", text("docs/components.md"), re.M)

    assert sorted(rows) == sorted(set(Spec.__struct_fields__) - {"name"})


def test_every_error_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| (?:\*\*)?`([A-Za-z]+)`", text("docs/errors.md"), re.M)
    public = [name for name in errors.__all__ if inspect.isclass(getattr(errors, name))]

    assert sorted(rows) == sorted(public)


def test_the_tolerated_outages_are_the_computed_ones() -> None:
    rows = re.findall(
        r"^\| (\d+) s \| (.+?) \| ([\d.]+) s \| ([\d.]+) s \|$", text("docs/settings.md"), re.M
    )

    assert len(rows) == 5
    ticks: Mapping[str, float | None] = {
        "single": 0.0,
        "ensemble, tick 2 s": 2.0,
        "ensemble, tick unknown": None,
    }
    for session, servers, outage, grace in rows:
        numbers = Numbers.of(float(session), tick=ticks[servers])
        numbers.fit()
        assert numbers.tolerated_outage == pytest.approx(float(outage)), (session, servers)
        assert numbers.stop_grace == pytest.approx(float(grace)), (session, servers)


# ── ARCHITECTURE.md


def test_the_protocol_of_guardian_and_agent_is_the_documented_one() -> None:
    rows = {
        name: shown.split(", ")
        for name, shown in re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", text("ARCHITECTURE.md"), re.M)
    }
    kinds = [
        kind
        for _, kind in inspect.getmembers(messages, inspect.isclass)
        if isinstance(kind.__dict__.get("tag"), str)
    ]

    assert rows == {kind.tag: [field.name for field in fields(kind)] for kind in kinds}


def test_every_package_stands_in_the_table_of_modules() -> None:
    source = ROOT / "src" / "incumbent"
    packages = {p.parent.name for p in source.glob("*/__init__.py")}
    modules = {p.stem for p in source.glob("*.py")} - {"__init__"}

    for name in sorted(packages | modules):
        assert f"`{name}`" in section("ARCHITECTURE.md", "Shape"), name


# ── places


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    content = path.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", content):
        if not target.startswith(("http:", "https:")):
            assert (path.parent / target).exists(), target
    for name in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", content):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`([a-z_]+/[a-z_]+\.py)`", content):
        places = (ROOT / name, ROOT / "src" / "incumbent" / name, path.parent / name)
        assert any(place.exists() for place in places), name


def test_no_text_cites_a_document_that_is_not_here() -> None:
    """Whoever reads the code has this repository and nothing else."""
    here = {path.name for path in ROOT.rglob("*.md")}
    cites = re.compile(r"\b[A-Z]{4,}\.md\b|\b[A-Z]{4,}(?= (?:part \d|§))")
    for folder in ("src", "tests", "benchmarks", "examples", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md", ".c", ".java"):
                assert set(cites.findall(path.read_text())) <= here, path


def test_modules_that_are_named_can_be_imported() -> None:
    for path in FILES:
        for name in re.findall(r"`(incumbent(?:\.(?!toml)[a-z_]+)+)`", path.read_text()):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                module, _, attribute = name.rpartition(".")
                assert hasattr(importlib.import_module(module), attribute), name
