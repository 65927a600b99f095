"""Which commands there are, and that whoever waits for one does not wait for the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from incumbent.cli.commands import GROUPS, SINGLE, app_of
from incumbent.cli.dispatch import LASTING

_IMPORTED = (
    "import sys\n"
    "from incumbent.cli.commands import run_typer\n"
    "run_typer([sys.argv[1], '--help'])\n"
    "print(*(name for name in sys.modules if name.startswith('incumbent.cli.')))\n"
)


@pytest.mark.parametrize("name", ["status", "node"])
def test_a_command_imports_no_other_commands_module(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _IMPORTED, name], capture_output=True, text=True, check=True
    )

    imported = set(ran.stdout.splitlines()[-1].split())
    own = {**GROUPS, **SINGLE}[name].partition(":")[0]
    others = {place.partition(":")[0] for place in [*GROUPS.values(), *SINGLE.values()]}
    assert f"incumbent.cli.{own}" in imported
    assert not {f"incumbent.cli.{each}" for each in others - {own, "pausing"}} & imported


def test_an_app_of_one_command_takes_the_rest_for_its_arguments() -> None:
    for name in (*GROUPS, *SINGLE, *LASTING):
        assert app_of([name])
