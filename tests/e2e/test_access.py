"""Closed trees, with real agents: who may write orders, and what strangers get.

On our server and on Apache's, by digest and by certificate.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apache import ApacheServer, apache_missing, free_port
from tests.e2e.nodes import INCUMBENT, Nodes, run_cli
from tests.e2e.served import Served, certificates
from tests.e2e.terminals import Terminals
from tests.waiting import wait_until

from incumbent.agent.tree import Tree
from incumbent.cli.files import Files
from incumbent.client import Client
from incumbent.credentials import Credentials, read_auth
from incumbent.errors import NoAuth
from incumbent.wire import OPEN_ACL

WEB = '[component.web]\ncommand = "sleep 1000"\nenv = { DB_PASSWORD = "hunter2" }\n'
TREE = Tree()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, session=3.0) as started:
        yield started


def init(nodes: Nodes, *more: str) -> subprocess.CompletedProcess[str]:
    return nodes.cli("init", "--folder", nodes.folder / "keys", *more)


def keys(nodes: Nodes) -> Files:
    return Files(nodes.folder / "keys")


def as_operator(nodes: Nodes, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return nodes.cli(*arguments, env={"INCUMBENT_AUTH": str(keys(nodes).operators)})


def attack(hosts: str, **how: Any) -> list[str]:
    """Everything that a stranger could wish to do; what was not refused by the server."""

    async def story() -> list[str]:
        client = Client(hosts, **how)
        await client.connect(10.0)
        seat = "web/0"
        evil = b'{"v":1,"name":"evil","command":["touch","/tmp/evil"]}'
        tries = {
            "a new spec": client.create(TREE.component("evil"), evil),
            "another spec": client.set(TREE.component("web"), evil),
            "stop": client.set(TREE.desired("web"), b'{"v":1,"run":false}'),
            "an order": client.create(f"{TREE.commands('web')}/now", b"restart"),
            "pause": client.set(TREE.control, b'{"v":1,"paused":true}'),
            "the plan": client.set(TREE.plan, b"{}"),
            "a breadcrumb": client.delete(TREE.breadcrumb(seat, 1)),
            "a new breadcrumb": client.create(TREE.breadcrumb(seat, 9), b"{}"),
            "an epoch": client.set(TREE.seat(seat), b'{"v":1,"epoch":99}'),
            "a candidate": client.create(f"{TREE.election(seat)}/x__lock__", b"{}", ephemeral=True),
            "a node": client.create(TREE.node("evil"), b"{}", ephemeral=True),
            "a lock": client.create(f"{TREE.root}/locks/x"),
            "the ACL": client.set_acl(TREE.root, OPEN_ACL),
            "who is who": client.set(TREE.access, b"{}"),
            "a look": client.get(TREE.component("web")),
        }
        done = []
        for what, work in tries.items():
            try:
                await work
                done.append(what)
            except NoAuth:
                continue
        await client.close()
        return done

    return asyncio.run(story())


def test_a_stranger_can_write_nothing_and_nothing_changes(nodes: Nodes) -> None:
    assert init(nodes).returncode == 0
    nodes.begin("n1", "--auth", str(keys(nodes).agents))
    file = nodes.folder / "web.toml"
    file.write_text(WEB)
    assert as_operator(nodes, "apply", file).returncode == 0
    before = running(nodes)

    assert attack(nodes.hosts) == []
    assert attack(nodes.hosts, auth=(("digest", b"operators:guessed"),)) == []

    assert running(nodes) == before
    refused = nodes.cli("status")
    assert refused.returncode == 1
    assert "not permitted" in refused.stderr and "`auth`" in refused.stderr
    restarted = as_operator(nodes, "restart", "web", "--wait")
    assert restarted.returncode == 0, restarted.stderr
    assert running(nodes)["epoch"] == before["epoch"] + 1


def running(nodes: Nodes) -> dict[str, Any]:
    """The seat's row once it runs, without what grows by itself."""

    def look() -> dict[str, Any] | None:
        done = as_operator(nodes, "status", "--output", "json")
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return rows[0] if rows and rows[0]["state"] == "running" else None

    row = wait_until(look, 30.0, "web to run")
    assert row is not None
    return {key: row[key] for key in ("component", "node", "pid", "epoch", "since")}


def test_an_agent_takes_no_orders_from_a_tree_that_anybody_may_write(nodes: Nodes) -> None:
    nodes.apply(WEB)  # by somebody, into an open tree
    agent = nodes.terminals.start(
        "n1", [*INCUMBENT, "agent", "--zookeeper", nodes.hosts, "--data", nodes.folder / "n1"]
    )

    agent.wait_for_complaint("nothing runs here: anybody may write /incumbent", 30.0)

    assert any("`incumbent init`" in line and "--insecure" in line for line in agent.complaints())
    told = nodes.cli("status", env={"INCUMBENT_DATA": str(nodes.folder / "n1")})
    assert "anybody may write /incumbent" in told.stderr
    assert nodes.cluster().nodes == {}
    done = init(nodes)
    assert done.returncode == 0, done.stderr
    assert "web: declared before" in done.stderr
    agent.wait_for_complaint("is closed to no credential", 30.0)
    assert agent.end() == 0


def test_a_tree_in_use_is_closed_without_stopping_anything(nodes: Nodes) -> None:
    node = nodes.start("n1")
    nodes.apply(WEB)
    before = nodes.wait("web", "running")

    refused = init(nodes)
    assert refused.returncode == 1
    assert "would stop n1" in refused.stderr
    assert not nodes.ask(lambda client: client.exists(TREE.access))
    node.stop()
    node._options = ("--auth", str(keys(nodes).agents), "--insecure")
    node.start_again().connected()
    nodes.wait("web", "running", timeout=30.0)
    done = init(nodes)

    assert done.returncode == 0, done.stderr
    after = running(nodes)
    assert after["epoch"] == before["epoch"] + 1
    assert attack(nodes.hosts) == []
    again = init(nodes)
    assert again.returncode == 0 and "as they were" in again.stdout
    assert as_operator(nodes, "restart", "web", "--wait").returncode == 0
    assert "as they were" in init(nodes).stdout, "and what was made since is closed too"


def test_whoever_would_lock_himself_out_is_stopped(nodes: Nodes) -> None:
    refused = init(nodes, "--operators", "x509:CN=somebody", "--agents", "x509:CN=n1")

    assert refused.returncode == 1
    assert "could not be opened again; nothing was changed" in refused.stderr
    assert nodes.ask(lambda client: client.exists(TREE.root)) is None


def test_an_order_that_a_stranger_could_have_written_is_passed_over(nodes: Nodes) -> None:
    init(nodes)
    node = nodes.begin("n1", "--auth", str(keys(nodes).agents))
    file = nodes.folder / "web.toml"
    file.write_text(WEB)
    as_operator(nodes, "apply", file)
    before = running(nodes)

    async def careless(client: Client) -> None:
        await client.create(f"{TREE.commands('web')}/now", b"restart", acl=list(OPEN_ACL))

    with_operators(nodes, careless)

    node.guardian.wait_for_complaint("now is passed over: anybody may write", 20.0)
    assert running(nodes) == before


def with_operators(nodes: Nodes, work: Any) -> None:
    async def story() -> None:
        client = Client(nodes.hosts, auth=read_auth(keys(nodes).operators))
        await client.connect(10.0)
        await work(client)
        await client.close()

    asyncio.run(story())


def test_a_digest_goes_nowhere_in_clear_text_unasked(tmp_path: Path) -> None:
    secret = tmp_path / "a.auth"
    secret.write_text("digest:agents:hunter2\n")
    secret.chmod(0o600)
    where = {"INCUMBENT_ZOOKEEPER": "192.0.2.1:2181", "INCUMBENT_AUTH": str(secret)}

    for command in (("status",), ("agent", "--data", tmp_path / "n"), ("lock", "x", "--", "true")):
        done = run_cli(*command, env=where)
        assert done.returncode in (2, 125)
        assert "digest:agents would go to 192.0.2.1:2181 in clear text" in done.stderr
        assert "hunter2" not in done.stderr + done.stdout


def test_a_credentials_file_that_others_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "a.auth"
    secret.write_text("digest:agents:hunter2\n")
    secret.chmod(0o644)

    done = run_cli(
        "agent", "--zookeeper", "127.0.0.1:1", "--auth", secret, "--data", tmp_path / "n"
    )

    assert done.returncode == 2
    assert done.stderr == (
        f"incumbent: {secret}: others can read or change it: chmod 600 {secret}\n"
    )


def test_a_node_runs_only_what_its_own_file_allows(nodes: Nodes) -> None:
    limits = nodes.folder / "node.toml"
    limits.write_text('[incumbent]\nallow_commands = ["/usr/bin/tail", "/srv/*"]\n')
    limits.chmod(0o644)
    secrets = nodes.folder / "web.env"
    secrets.write_text("DB_PASSWORD=hunter2\n")
    secrets.chmod(0o644)
    node = nodes.start("n1", "--node-file", str(limits))
    nodes.apply(
        '[component.evil]\ncommand = ["sh", "-c", "echo evil"]\n'
        '[component.good]\ncommand = "tail -f /dev/null"\n'
        f'[component.web]\ncommand = "tail -f /dev/null"\nenv_file = "{secrets}"\n'
    )

    nodes.wait("good", "running")
    evil = nodes.wait("evil", "waiting", node=None)
    web = nodes.wait("web", "waiting", node=None)

    assert "this node does not run" in evil["why"] and f"in {limits})" in evil["why"]
    assert evil["epoch"] is None
    assert f"chmod o=,g-w {secrets}" in web["why"]
    secrets.chmod(0o600)
    nodes.wait("web", "running")
    said = "\n".join(node.guardian.complaints()) + nodes.cli("status").stdout
    assert "hunter2" not in said
    assert node.stop() == 0


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o666, "", "others can change it: chmod go-w"),
        (0o644, 'allow_commands = ["sleep"]', "expected a list of absolute paths"),
    ],
)
def test_a_node_whose_limits_are_not_sure_does_not_start(
    tmp_path: Path, mode: int, text: str, why: str
) -> None:
    limits = tmp_path / "node.toml"
    limits.write_text(f"[incumbent]\n{text}\n")
    limits.chmod(mode)

    done = run_cli("agent", "--zookeeper", "127.0.0.1:1", "--node-file", limits)

    assert done.returncode == 2
    assert why in done.stderr


# ── by certificate, and on Apache


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """certificates of the server, and of one client, CN=web."""
    return certificates(tmp_path_factory.mktemp("certificates"), "/CN=web")


def closed_by_certificate(folder: Path, hosts: str, files: Path) -> None:
    """One life of a closed tree over TLS, with the same certificate for all who may come in."""
    tls = {
        "INCUMBENT_ZOOKEEPER": hosts,
        "INCUMBENT_TLS_CA": str(files / "ca.pem"),
        "INCUMBENT_TLS_CERT": str(files / "client.pem"),
        "INCUMBENT_DATA": str(folder / "n1"),
    }
    file = folder / "web.toml"
    file.write_text(WEB)
    known = Credentials(tls_ca=str(files / "ca.pem"), tls_cert=str(files / "client.pem"))
    done = run_cli("init", "--operators", "x509:CN=web", "--agents", "x509:CN=web", env=tls)
    assert done.returncode == 0, done.stderr
    with Terminals(folder) as terminals:
        options = [f"--{key[10:].lower().replace('_', '-')}={value}" for key, value in tls.items()]
        agent = terminals.start("n1", [*INCUMBENT, "agent", "--node", "n1", *options])
        applied = run_cli("apply", file, env=tls)
        assert applied.returncode == 0, applied.stderr

        def runs() -> bool:
            shown = run_cli("status", "--output", "json", env=tls)
            return '"running"' in shown.stdout

        wait_until(runs, 60.0, f"web to run; the agent said {agent.complaints()}")
        assert agent.end(timeout=30.0) == 0

    async def left() -> list[str]:
        client = Client(hosts, **known.for_client())
        await client.connect(10.0)
        names = await client.children(TREE.running("web/0"))
        await client.close()
        return names

    assert asyncio.run(left()) == []


def test_certificates_close_a_tree_on_our_server(tmp_path: Path, certified: Path) -> None:
    files = certified
    with Served(
        tmp_path, "--tls-cert", files / "server.pem", "--tls-ca", files / "ca.pem"
    ) as served:
        closed_by_certificate(tmp_path, served.hosts, files)


@pytest.mark.skipif(apache_missing() is not None, reason=str(apache_missing()))
def test_certificates_and_digests_close_trees_on_apache(tmp_path: Path, certified: Path) -> None:
    secure = free_port()
    store = tmp_path / "server.pem"
    store.write_text((certified / "server.pem").read_text())
    (tmp_path / "zk").mkdir()
    apache = "org.apache.zookeeper.server"
    settings = {
        "secureClientPort": secure,
        "serverCnxnFactory": f"{apache}.NettyServerCnxnFactory",
        "ssl.keyStore.location": store,
        "ssl.trustStore.location": certified / "ca.pem",
        "ssl.clientAuth": "need",
        "authProvider.x509": f"{apache}.auth.X509AuthenticationProvider",
    }
    with ApacheServer(tmp_path / "zk", settings=settings) as server:
        closed_by_certificate(tmp_path, f"127.0.0.1:{secure}", certified)
        where = {"INCUMBENT_ZOOKEEPER": server.hosts, "INCUMBENT_ROOT": "/second"}
        done = run_cli("init", "--folder", tmp_path / "keys", env=where)
        assert done.returncode == 0, done.stderr
        again = run_cli("init", "--folder", tmp_path / "keys", env=where)
        assert "as they were" in again.stdout
        assert run_cli("status", env=where).returncode == 1
        more = {**where, "INCUMBENT_AUTH": str(tmp_path / "keys" / "operators.auth")}
        assert run_cli("status", env=more).returncode == 0
        assert attack(server.hosts) == []


def test_locks_of_a_closed_tree_are_closed_too(nodes: Nodes) -> None:
    init(nodes)
    agent = {"INCUMBENT_AUTH": str(keys(nodes).agents)}

    locked = nodes.cli("lock", "x", "--", "true", env=agent)
    put = nodes.cli("queue", "put", "jobs", "one", env=agent)
    refused = nodes.cli("lock", "x", "--timeout", "5", "--", "true")

    assert (locked.returncode, put.returncode) == (0, 0), locked.stderr + put.stderr
    assert refused.returncode == 125
    assert "not permitted" in refused.stderr
    assert "as they were" in init(nodes).stdout
