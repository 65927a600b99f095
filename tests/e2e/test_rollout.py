"""A change of several copies, as an operator has it: one after the other, and no further than it works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import Nodes
from tests.waiting import wait_until

from incumbent.agent.tree import Tree
from incumbent.cli.config import put

COPIES = range(4)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, tick=0.5, session=6.0) as running:
        running.start("n1")
        running.start("n2")
        yield running


class Web:
    """A component of four copies that write down what they do; `bad` is a value that it cannot stand."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.nodes = nodes
        self.out = folder / "out"
        self.script = folder / "web"
        self.script.write_text(
            "#!/bin/sh\n"
            f'say() {{ echo "$INCUMBENT_SEAT $1 $LEVEL$MORE" >> {self.out}; }}\n'
            '[ "$LEVEL$MORE" = bad ] && { echo no such level; exit 1; }\n'
            "trap 'say stop; exit 0' TERM\n"
            "say start; sleep 0.2; say ready; echo >&3\n"
            "while :; do sleep 0.1; done\n"
        )
        self.script.chmod(0o755)

    def apply(self, more: str = "") -> str:
        return self.nodes.apply(
            f"""[component.web]
command = ["{self.script}"]
env = {{ MORE = "{more}" }}
copies = {len(COPIES)}
config = {{ LEVEL = "web.level" }}
ready = {{ fd = 3, within = 10 }}
debounce = 0.5
auto_revert = {str("revert" in str(self.out)).lower()}
"""
        )

    def rows(self) -> list[dict[str, object]]:
        return [row for row in self.nodes.status() if row["component"] == "web"]

    def wait(self, state: str = "ready", why: str = "") -> list[int]:
        """Until all are so; their pids."""

        def look() -> list[int]:
            rows = self.rows()
            is_so = all(row["state"] == state and why in str(row["why"]) for row in rows)
            return [int(str(row["pid"])) for row in rows] if is_so and len(rows) == 4 else []

        return wait_until(look, 40.0, f"all to be {state} {why}, not {self.rows()}")

    def events(self, value: str) -> list[tuple[str, str]]:
        """(seat, what) since the first start with `value`, without the last one's stop before."""
        lines = [line.split() for line in self.out.read_text().splitlines()]
        at = next(k for k, line in enumerate(lines) if line[1:] == ["start", value])
        return [(line[0], line[1]) for line in lines[at:]]


def test_each_copy_is_up_again_before_the_next_one_is_stopped(nodes: Nodes, tmp_path: Path) -> None:
    web = Web(nodes, tmp_path)
    nodes.cli("config", "set", "web.level", "1")
    web.apply()
    web.wait()

    nodes.cli("config", "set", "web.level", "2")

    wait_until(lambda: web.out.read_text().count("ready 2") == 4, 40.0)
    whats = [what for _, what in web.events("2")]
    assert whats == ["start", "ready", "stop"] * 3 + ["start", "ready"]
    seats = [seat for seat, what in web.events("2") if what == "ready"]
    assert sorted(seats) == [f"web/{k}" for k in COPIES]

    done = nodes.cli("restart", "web", "--max-parallel", "1")

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4), done.stderr
    again = [what for _, what in web.events("2")][len(whats) :]
    assert again == ["stop", "start", "ready"] * 4, "copies are counted, not components"


def test_a_bad_value_stops_at_the_first_copy_and_is_told(nodes: Nodes, tmp_path: Path) -> None:
    web = Web(nodes, tmp_path)
    nodes.cli("config", "set", "web.level", "1")
    web.apply()
    before = web.wait()

    nodes.cli("config", "set", "web.level", "bad")

    told = r"the roll-out is stopped: copy \d: exited with 1 after 0\.\d s: no such level"
    spared = wait_until(
        lambda: (
            (rows := [r for r in web.rows() if re.match(told, str(r["why"]))])
            and len(rows) == 3
            and rows
        ),
        40.0,
    )
    assert all(row["pid"] in before and row["state"] == "ready" for row in spared)
    name = f"web/{spared[0]['seat']}"
    assert "`incumbent retry web` tries the same again" in nodes.cli("why", name).stdout

    nodes.cli("config", "revert", "web.level")

    wait_until(lambda: all(row["state"] == "ready" for row in web.rows()), 40.0)
    after = web.wait()
    assert len(set(before) & set(after)) == 3, "those that had no turn went on"


def test_with_auto_revert_a_bad_spec_is_taken_back_and_the_next_one_reaches_all(
    nodes: Nodes, tmp_path: Path
) -> None:
    folder = tmp_path / "revert"
    folder.mkdir()
    web = Web(nodes, folder)
    nodes.cli("config", "set", "web.level", "")
    web.apply("good")
    before = web.wait()
    file = nodes.folder / "components.toml"
    same = nodes.cli("apply", file, "--plan")
    file.write_text(file.read_text().replace('"good"', '"bad"'))
    other = nodes.cli("apply", file, "--plan")
    assert (same.returncode, other.returncode) == (0, 2)
    assert (
        'env.MORE  "good" → "bad"' in other.stdout and "web/0, web/1, web/2, web/3" in other.stdout
    )

    web.apply("bad")

    after = web.wait(why="the change is taken back: copy ")
    assert len(set(before) & set(after)) == 3
    assert "no such level" in str(web.rows()[0]["why"])

    web.apply("better")

    wait_until(lambda: web.out.read_text().count("ready better") == 4, 40.0)


def test_after_five_hundred_rapid_writes_every_copy_has_the_final_one(
    nodes: Nodes, tmp_path: Path
) -> None:
    web = Web(nodes, tmp_path)
    nodes.cli("config", "set", "web.level", "first")
    web.apply()
    web.wait()

    async def rapid(client: object) -> None:
        for number in range(500):
            await put(client, Tree(), "web.level", str(number))  # type: ignore[arg-type]
        await put(client, Tree(), "web.level", "final")  # type: ignore[arg-type]

    nodes.ask(rapid)

    wait_until(lambda: web.out.read_text().count("ready final") == 4, 40.0)
    starts = [line.split()[0] for line in web.out.read_text().splitlines() if " start " in line]
    assert all(starts.count(f"web/{k}") <= 3 for k in COPIES), "the first, and two restarts"
    history = nodes.cli("config", "history", "web.level").stdout
    assert "first" in history, "what stood longest is kept"
