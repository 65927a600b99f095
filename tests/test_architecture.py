"""Imports point down only, pure modules stay pure, and the rim is named.

A new module that needs the outside world is added to the list here, on purpose.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "incumbent"

MODULES = {
    str(path.relative_to(SOURCE).with_suffix("")): ast.parse(path.read_text())
    for path in sorted(SOURCE.rglob("*.py"))
}
"""Name, such as "client/session" → its syntax tree."""

GROUND = {"errors", "clock", "lease", "credentials", "certificates", "wire"}
FILES = {
    "allowances",
    "log_service",
    "masking",
    "toml_file",
    "settings",
    "runtime_file",
    "spec",
    "launch",
}
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "lease": {"errors"},
    "credentials": {"errors"},
    "certificates": {"wire"},
    "allowances": set(),
    "masking": set(),
    "wire": {"errors"},
    "parent": set(),
    "unix_socket": set(),
    "server": GROUND | {"parent", "unix_socket"},
    "client": GROUND,
    "recipes": GROUND | {"client"},
    "work": GROUND | {"client", "recipes"},
    "aio": GROUND | {"client", "recipes", "work"},
    "portal": {"errors"},
    "blocking": GROUND | {"client", "recipes", "portal"},
    "blocking_blocks": GROUND | {"recipes", "portal", "blocking"},
    "blocking_locks": GROUND | {"client", "recipes", "portal", "blocking", "blocking_blocks"},
    "blocking_items": GROUND | {"client", "recipes", "portal", "blocking", "blocking_blocks"},
    "blocking_views": GROUND | {"client", "recipes", "portal", "blocking", "blocking_blocks"},
    "blocking_work": GROUND
    | {"client", "recipes", "work", "portal", "blocking", "blocking_blocks"},
    "sync": GROUND
    | {"client", "recipes", "work", "portal", "aio"}
    | {"blocking", "blocking_blocks", "blocking_locks", "blocking_items"}
    | {"blocking_views", "blocking_work"},
    "__init__": {"sync", "aio", "errors"},
    "guardian": GROUND | {"parent"},
    "toml_file": {"errors"},
    "runtime_file": {"errors"},
    "log_service": {"certificates"},
    "settings": GROUND | {"allowances", "log_service", "toml_file", "runtime_file"},
    "spec": {"errors", "masking", "toml_file", "settings"},
    "launch": {"errors", "allowances", "toml_file", "spec"},
    "agent": GROUND | FILES | {"unix_socket", "client", "recipes", "work", "aio", "guardian"},
    "cli": GROUND
    | FILES
    | {
        "parent",
        "unix_socket",
        "client",
        "recipes",
        "aio",
        "sync",
        "__init__",
        "guardian",
        "agent",
    },
}
"""Package or module → what it may import of ours. `testing` may import anything."""

THIRD_PARTY = {
    "agent": {"msgspec"},
    "spec": {"msgspec"},
    "cli": {"typer", "rich"},
    "server/main": {"uvloop"},
    "portal": {"uvloop"},
    "client/kerberos": {"gssapi"},
    "work/sql": {"sqlalchemy"},
}
"""Everything else is standard library only: the bare wheel takes a lock."""

PURE = (
    "errors",
    "allowances",
    "masking",
    "lease",
    "wire/",
    "server/tree",
    "server/transactions",
    "server/expiry",
    "recipes/dialects",
    "recipes/line",
    "recipes/round",
    "recipes/picture",
    "work/records",
    "guardian/table",
    "guardian/codec",
    "guardian/messages",
    "guardian/actions",
    "guardian/seat",
    "agent/access",
    "agent/log_words",
    "agent/tree",
    "agent/placement",
    "agent/lifecycle",
)
IMPURE_IMPORTS = {
    "asyncio",
    "concurrent",
    "datetime",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "uuid",
}

RIM: dict[str, set[str]] = {
    "uuid": set(),
    "secrets": {"server/sqlite"},
    "urandom": set(),
    "SystemRandom": {
        "agent/main",
        "agent/wrapping",
        "aio",
        "client/session",
        "guardian/closer",
        "server/server",
    },
    "to_thread": {"agent/host"},
    "run_in_executor": {"blocking_work", "sync"},
    "threading": {
        "agent/serving",
        "blocking",
        "blocking_blocks",
        "client/kerberos",
        "guardian/logwriter",
        "portal",
        "server/worker",
    },
    "time": {
        "agent/host",
        "agent/lines",
        "agent/proc",
        "clock",
        "guardian/cgroup",
        "guardian/closer",
        "guardian/first",
        "guardian/kernel",
        "guardian/logwriter",
        "guardian/main",
        "server/backup",
        "server/main",
        "server/metrics",
    },
    "open": {
        "agent/deadline_file",
        "agent/home",
        "agent/host",
        "agent/proc",
        "agent/tail",
        "agent/working",
        "credentials",
        "guardian/cgroup",
        "guardian/first",
        "guardian/kernel",
        "guardian/logwriter",
        "launch/identity",
        "launch/named_file",
        "launch/start",
        "runtime_file",
        "server/copying",
        "server/directory",
        "server/main",
        "server/metrics",
        "server/sqlite",
        "server/zoo_cfg",
        "settings",
        "spec/file",
        "unix_socket",
    },
}
"""What reaches outside, and the only modules that may. All of `cli` and `testing` may: the one
is the rim, the other nobody ships in a program."""

_CALENDAR = {"strftime", "localtime", "gmtime", "struct_time"}
"""Of `time`, what reads no clock when it is told the time."""

_FILE_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}


def top(module: str) -> str:
    return module.split("/")[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported module, also inside functions; `from incumbent import x` is incumbent.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "incumbent":
                yield from (f"incumbent.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def ours(tree: ast.AST) -> set[str]:
    """Which of our packages and modules it imports."""
    found = {name.split(".")[1] for name in imports(tree) if name.startswith("incumbent.")}
    known = {top(module) for module in MODULES}
    return {name if name in known else "__init__" for name in found}


def reaches(tree: ast.AST) -> set[str]:
    """Which keys of RIM it uses."""
    found = {name.split(".")[0] for name in imports(tree)} & {"uuid", "secrets", "threading"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if node.attr in ("urandom", "SystemRandom", "to_thread", "run_in_executor"):
                found.add(node.attr)
            is_time = isinstance(node.value, ast.Name) and node.value.id == "time"
            if is_time and node.attr not in _CALENDAR:
                found.add("time")
            is_os_open = (
                node.attr in ("open", "fdopen")
                and isinstance(node.value, ast.Name)
                and node.value.id in ("os", "io")
            )
            if is_os_open or node.attr in _FILE_METHODS:
                found.add("open")
        elif isinstance(node, ast.Name) and node.id in ("SystemRandom", "to_thread"):
            found.add(node.id)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            found.add("open")
    return found


@pytest.mark.parametrize("module", [m for m in MODULES if top(m) != "testing"])
def test_imports_point_down_only(module: str) -> None:
    allowed = LAYERS[top(module)] | {top(module)}

    assert ours(MODULES[module]) <= allowed


def test_the_layers_have_no_circle() -> None:
    below: dict[str, set[str]] = {}
    waiting = dict(LAYERS)
    while waiting:
        free = [name for name, needs in waiting.items() if needs <= below.keys()]
        assert free, f"a circle among {sorted(waiting)}"
        for name in free:
            below[name] = waiting.pop(name)


@pytest.mark.parametrize("module", [m for m in MODULES if top(m) != "testing"])
def test_dependencies_are_the_extras_ones_and_only_there(module: str) -> None:
    allowed = THIRD_PARTY.get(module, THIRD_PARTY.get(top(module), set()))
    roots = {name.split(".")[0] for name in imports(MODULES[module])}

    assert roots - set(sys.stdlib_module_names) - {"incumbent"} <= allowed


@pytest.mark.parametrize("pure", PURE)
def test_pure_modules_import_nothing_that_reaches_outside(pure: str) -> None:
    found = {
        m: t for m, t in MODULES.items() if m == pure or (pure[-1] == "/" and m.startswith(pure))
    }

    assert found, f"{pure} is gone: take it off the list"
    for module, tree in found.items():
        roots = {name.split(".")[0] for name in imports(tree)}
        assert not roots & IMPURE_IMPORTS, module
        assert not reaches(tree), module


@pytest.mark.parametrize("reach", RIM)
def test_only_the_named_rim_reaches_outside(reach: str) -> None:
    found = {
        module
        for module, tree in MODULES.items()
        if top(module) not in ("cli", "testing") and reach in reaches(tree)
    }

    assert found <= RIM[reach]


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_left_to_the_garbage_collector(module: str) -> None:
    names = {n.name for n in ast.walk(MODULES[module]) if isinstance(n, ast.FunctionDef)}

    assert "__del__" not in names


@pytest.mark.parametrize("module", [m for m in MODULES if not m.endswith("__")])
def test_a_module_opens_with_its_idea_and_its_rule(module: str) -> None:
    said = ast.get_docstring(MODULES[module]) or ""

    assert "Rule of this file" in said


@pytest.mark.parametrize("module", ["server.main", "agent.main", "guardian.main"])
def test_long_lived_processes_start_without_the_cli_s_libraries(module: str) -> None:
    code = (
        f"import sys, incumbent.{module}; "
        "print(sorted({'typer', 'rich', 'click'} & {m.split('.')[0] for m in sys.modules}))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
