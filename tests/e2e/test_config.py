"""`incumbent config`, and components that use it, as an operator has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import Nodes
from tests.waiting import wait_until


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, tick=0.5, session=6.0) as running:
        yield running


def test_a_key_is_set_changed_looked_back_at_and_reverted(nodes: Nodes) -> None:
    assert nodes.cli("config", "get").returncode == 0
    assert nodes.cli("config", "get", "level").stderr == (
        "incumbent: level is not set; there are: none\n"
    )

    said = [nodes.cli("config", "set", "level", value).stdout for value in ("1", "2", "2")]

    assert said == ["level set\n", "level changed\n", "level unchanged\n"]
    assert nodes.cli("config", "get", "level").stdout == "2\n"
    assert nodes.cli("config", "revert", "level").stdout == "level changed\n"
    assert nodes.cli("config", "get", "level").stdout == "1\n"
    rows = nodes.cli("config", "history", "level").stdout.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["0", "1"], ["1", "2"], ["2", "1"]]
    assert "has 2 earlier values" in nodes.cli("config", "revert", "level", "--to", "9").stderr
    assert nodes.cli("config", "set", "no/key", "x").returncode == 2


def test_an_editor_changes_a_value_and_its_failure_changes_nothing(
    nodes: Nodes, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "more = 2" >> "$1"\n')
    editor.chmod(0o755)
    nodes.cli("config", "set", "rules", "-", stdin="level = 1\n")

    edited = nodes.cli("config", "edit", "rules", env={"EDITOR": str(editor)})
    failed = nodes.cli("config", "edit", "rules", env={"EDITOR": "false"})

    assert edited.stdout == "rules changed\n"
    assert (failed.returncode, failed.stderr) == (
        1,
        "incumbent: false ended with 1; nothing was changed\n",
    )
    assert nodes.cli("config", "get", "rules").stdout == "level = 1\nmore = 2\n"


def test_a_program_gets_a_variable_and_a_file_and_is_restarted_when_one_changes(
    nodes: Nodes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    nodes.start("n1")
    template = tmp_path / "conf.in"
    template.write_text("${LEVEL} at $host by ${INCUMBENT_NODE}\n")
    nodes.apply(
        f"""[component.web]
command = ["sh", "-c", "echo $LEVEL; cat $RULES; echo $LEVEL $(cat $RULES) $(cat $CONF) >> {out}; exec sleep 1000"]
debounce = 0.5
[component.web.config]
LEVEL = "web.level"
RULES = {{ key = "web.rules", file = true }}
CONF = {{ template = "{template}" }}

[component.other]
command = "sleep 1000"
"""
    )
    missing = "incumbent config set web.level VALUE"
    wait_until(lambda: missing in nodes.wait("web", "waiting")["why"])
    other = nodes.wait("other", "running")

    nodes.cli("config", "set", "web.level", "7")
    nodes.cli("config", "set", "web.rules", "be kind")
    nodes.wait("web", "running")
    nodes.cli("config", "set", "web.level", "8")

    last = "8 be kind 8 at $host by n1\n"
    wait_until(lambda: out.exists() and out.read_text().endswith(last))
    assert out.read_text() == f"7 be kind 7 at $host by n1\n{last}"
    assert nodes.wait("other", "running")["pid"] == other["pid"]
    files = sorted((nodes.nodes[0].data / "config").glob("*/*"))
    modes = [(f.name, f.stat().st_mode & 0o777) for f in files]
    assert modes == [("CONF", 0o600), ("RULES", 0o600)]
    template.write_text("${LEVLE}\n")
    nodes.cli("restart", "web")
    wrong = f"{template}:1: LEVLE: it has no value; did you mean `LEVEL`?"
    wait_until(lambda: wrong in nodes.row("web")["why"])
    assert nodes.cli("remove", "web").returncode == 0
    wait_until(lambda: not any(f.exists() for f in files), what="its configuration to go too")


def test_with_sighup_the_program_finds_the_new_file_and_goes_on(
    nodes: Nodes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    nodes.start("n1")
    script = f"trap 'cat $RULES >> {out}; echo >> {out}' HUP; while :; do sleep 0.1; done"
    nodes.cli("config", "set", "web.rules", "one")
    nodes.apply(
        f"""[component.web]
command = ["sh", "-c", "{script}"]
config = {{ RULES = {{ key = "web.rules", file = true }} }}
on_config = "SIGHUP"
debounce = 0.5
"""
    )
    before = nodes.wait("web", "running")

    nodes.cli("config", "set", "web.rules", "two")

    wait_until(lambda: out.exists() and out.read_text() == "two\n", timeout=20.0)
    assert nodes.wait("web", "running")["pid"] == before["pid"]
