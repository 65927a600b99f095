"""`incumbent logs` of what runs on other machines: real nodes, TLS, credentials, moves and deaths."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache import free_port
from tests.e2e.nodes import INCUMBENT, Node, Nodes
from tests.e2e.served import certificates
from tests.e2e.terminals import Terminal
from tests.waiting import wait_until

from incumbent.cli.files import Files

COMPONENTS = """
[component.web]
command = ["sh", "-c", "n=0; while :; do echo $INCUMBENT_EPOCH:$n; n=$((n+1)); sleep 0.02; done"]
before_start = { command = ["sh", "-c", "echo before $INCUMBENT_EPOCH"] }
nodes = ["n1", "n2"]

[component.shy]
command = ["sh", "-c", "echo hello; sleep 1000"]
nodes = ["n3"]
"""


class Served:
    """A closed tree that everybody may read, and nodes of which n1 and n2 show their logs. Readers
    come by TLS, to ZooKeeper too.
    """

    def __init__(self, folder: Path, pems: Path) -> None:
        self.secure = f"127.0.0.1:{free_port()}"
        tls = ("--tls-cert", str(pems / "server.pem"), "--tls-listen", self.secure)
        self.nodes = Nodes(folder, session=6.0, options=tls)
        self.keys = Files(folder / "keys")
        self.pems = pems

    def __enter__(self) -> Served:
        self.nodes.__enter__()
        try:
            self._start()
        except BaseException:
            self.nodes.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes.__exit__()

    def _start(self) -> None:
        nodes, pems = self.nodes, self.pems
        done = nodes.cli("init", "--folder", self.keys.folder, "--readable")
        assert done.returncode == 0, done.stderr
        for name in ("n1", "n2", "n3"):
            file = nodes.folder / f"{name}.toml"
            file.write_text(
                f'[logs]\nlisten = "127.0.0.1:{free_port()}"\ntls_cert = "{pems}/server.pem"\n'
                if name != "n3"
                else '[incumbent]\nlabels = { rack = "a" }\n'
            )
            nodes.begin(name, "--auth", str(self.keys.agents), "--node-file", str(file))
        for node in nodes.nodes:
            node.connected(60.0)
        file = self.nodes.folder / "components.toml"
        file.write_text(COMPONENTS)
        done = self.nodes.cli("apply", file, env={"INCUMBENT_AUTH": str(self.keys.operators)})
        assert done.returncode == 0, done.stderr

    def env(self, auth: Path | None = None, ca: bool = True) -> dict[str, str]:
        """Of somebody at a machine that is no node."""
        more = {"INCUMBENT_AUTH": str(auth)} if auth is not None else {}
        if ca:
            more["INCUMBENT_ZOOKEEPER"] = self.secure
            more["INCUMBENT_TLS_CA"] = str(self.pems / "ca.pem")
        nowhere = str(self.nodes.folder / "nowhere")
        return {"INCUMBENT_DATA": nowhere, "INCUMBENT_NODE": "desk", **more}

    def now(self) -> tuple[Node, int]:
        """The node that has `web`, and the epoch."""
        row = self.nodes.wait("web", "running", timeout=60.0)
        return self.nodes.named(row["node"]), row["epoch"]

    def logs(self, *arguments: str, **who: object) -> subprocess.CompletedProcess[str]:
        return self.nodes.cli("logs", *arguments, env=self.env(**who))  # type: ignore[arg-type]

    def follow(self, name: str) -> Terminal:
        """`logs -f` of an operator, by the time that it has shown a line of now."""
        command = [*INCUMBENT, "logs", "web", "-f", "-n", "1"]
        following = self.nodes.terminals.start(name, command, env=self.env(self.keys.operators))
        following.wait_for(f" {self.now()[1]}:", 30.0)
        return following


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with Served(folder, certificates(tmp_path_factory.mktemp("pems"))) as started:
        yield started


def counted(lines: list[str]) -> dict[int, list[int]]:
    """Epoch → what its program counted to, as shown."""
    found: dict[int, list[int]] = {}
    for line in lines:
        if match := re.fullmatch(r"\S+Z (\d+):(\d+)", line):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return found


def on_disk(node: Node, epoch: int) -> list[int]:
    return counted((node.data / "logs" / "web-0.log").read_text().splitlines())[epoch]


def test_who_may_not_read_is_told_so_and_shown_nothing(served: Served) -> None:
    node, _epoch = served.now()
    guessed = served.nodes.folder / "guessed.auth"
    guessed.write_text("digest:operators:guessed\n")
    guessed.chmod(0o600)

    refused = served.logs("web", auth=guessed)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert f"{node.name}: digest:operators may not read logs here" in refused.stderr
    unsure = served.logs("web", auth=served.keys.operators, ca=False)
    assert unsure.returncode == 1
    assert "is not known to be itself" in unsure.stderr and "`tls_ca`" in unsure.stderr
    assert served.logs("web", "-n", "3", auth=served.keys.operators).stdout.count("\n") == 3


def test_a_node_that_shows_no_logs_is_named_as_the_one_to_go_to(served: Served) -> None:
    served.nodes.wait("shy", "running", timeout=60.0)

    refused = served.logs("shy", auth=served.keys.operators)

    assert refused.returncode == 1
    assert "n3 shows its logs to no other machine: `incumbent logs shy` there" in refused.stderr


def test_a_label_of_nodes_stands_for_what_they_have(served: Served) -> None:
    served.nodes.wait("shy", "running", timeout=60.0)
    operator = {"INCUMBENT_AUTH": str(served.keys.operators)}
    web, shy = served.nodes.row("web")["epoch"], served.nodes.row("shy")["epoch"]

    done = served.nodes.cli("restart", "--node", "rack=a", "--wait", env=operator)
    none = served.nodes.cli("restart", "--node", "rack=b", env=operator)

    assert done.returncode == 0, done.stderr
    assert served.nodes.row("shy")["epoch"] == shy + 1
    assert served.nodes.row("web")["epoch"] == web
    assert none.returncode == 1
    assert "no live node has the label rack=b; labels there are: rack=a" in none.stderr
    assert "rack=a" in served.nodes.cli("node", "list", env=operator).stdout


def test_an_agent_that_is_killed_goes_on_showing_where_it_was(served: Served) -> None:
    node, epoch = served.now()
    following = served.follow("over a killed agent")

    old = node.kill_agent()
    wait_until(lambda: node.status() and node.agent_pid != old, 30.0, "its next agent")
    following.wait_for(f" {epoch}:{on_disk(node, epoch)[-1] + 20}", 30.0)

    shown = counted(following.lines())[epoch]
    assert shown == list(range(shown[0], shown[0] + len(shown)))
    following.end()


def test_it_is_followed_from_node_to_node_and_no_line_is_lost(served: Served) -> None:
    first, epoch = served.now()
    second = next(served.nodes.named(name) for name in ("n1", "n2") if name != first.name)
    following = served.follow("over a move and a death")

    to = ["move", "web", "--to", second.name, "--wait"]
    moved = served.nodes.cli(*to, env={"INCUMBENT_AUTH": str(served.keys.operators)})
    assert moved.returncode == 0, moved.stderr
    line = f"── web moved from {first.name} to {second.name} (epoch {epoch + 1}) ──"
    mark = following.wait_for(line, 30.0)
    following.wait_for(f" {epoch + 1}:20", 30.0)

    before, after = counted(following.lines()[: mark - 1]), counted(following.lines()[mark:])
    assert before.keys() == {epoch} and after.keys() == {epoch + 1}
    assert before[epoch] == on_disk(first, epoch)[-len(before[epoch]) :]  # to its very end
    assert after[epoch + 1][:20] == list(range(20))  # from its very beginning
    hook = served.logs("web", "--hook", "before_start", auth=served.keys.operators)
    assert hook.stdout.splitlines()[-1].endswith(f"before {epoch + 1}"), hook.stderr

    second.kill()
    line = f"── web moved from {second.name} to {first.name} (epoch {epoch + 2}) ──"
    following.wait_for(line, 60.0)
    following.wait_for(f" {epoch + 2}:5", 30.0)
    shown = counted(following.lines())
    assert shown[epoch + 2][:6] == list(range(6))
    assert shown[epoch + 1] == on_disk(second, epoch + 1)[: len(shown[epoch + 1])]
    assert any(second.name in line for line in following.complaints())
