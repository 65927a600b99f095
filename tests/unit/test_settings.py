"""Where settings come from, and what is said when one is wrong or missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from incumbent import runtime_file
from incumbent.credentials import Credentials
from incumbent.errors import SettingMissing, SpecErrors
from incumbent.runtime_file import Runtime
from incumbent.settings import KEYS, Settings, agent_data, name_problem, resolve

UID = 4_000_000  # nobody's: what the user running the tests has running is not looked at


class Places:
    """A user's home, working directory and /etc, all below one folder."""

    def __init__(self, below: Path) -> None:
        self.below = below
        self.folder = below / "work"
        self.folder.mkdir()
        (below / "run").mkdir()
        self.environ = {
            "HOME": str(below / "home"),
            "XDG_RUNTIME_DIR": str(below / "run"),
            "XDG_CONFIG_HOME": str(below / "config"),
            "XDG_STATE_HOME": str(below / "state"),
        }
        self.local = self.folder / "incumbent.toml"
        self.user = below / "config" / "incumbent" / "agent.toml"
        self.system = below / "etc" / "agent.toml"

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def resolve(self, flags: dict[str, object] | None = None, **environ: str) -> Settings:
        return resolve(
            flags,
            environ=self.environ | environ,
            folder=self.folder,
            uid=UID,
            system=self.system,
        )

    def run_up(self, zookeeper: str, folder: Path | None = None, **fields: object) -> Runtime:
        """What a running `up` in `folder` leaves; this test's process stands for it."""
        folder = folder or self.folder
        runtime = Runtime.of_this_process(
            file=folder / "incumbent.toml",
            zookeeper=zookeeper,
            root="/up",
            data=folder / ".incumbent" / "agent",
            node="n1",
            tick=0.0,
        )
        for field, value in fields.items():
            object.__setattr__(runtime, field, value)
        runtime_file.publish(runtime, folder, self.environ, UID)
        return runtime


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_each_place_goes_before_the_next(places: Places) -> None:
    places.write(places.system, '[incumbent]\nzookeeper = "system:1"')
    assert places.resolve().zookeeper == "system:1"

    places.write(places.user, '[incumbent]\nzookeeper = "user:1"')
    assert places.resolve().zookeeper == "user:1"

    elsewhere = places.below / "elsewhere"
    places.run_up("up-elsewhere:1", elsewhere)
    assert places.resolve().zookeeper == "up-elsewhere:1"

    places.run_up("up-here:1")
    assert places.resolve().zookeeper == "up-here:1"

    places.write(places.local, '[incumbent]\nzookeeper = "local:1"')
    assert places.resolve().zookeeper == "local:1"
    assert places.resolve(INCUMBENT_ZOOKEEPER="environment:1").zookeeper == "environment:1"
    both = places.resolve({"zookeeper": "flag:1"}, INCUMBENT_ZOOKEEPER="environment:1")
    assert both.zookeeper == "flag:1"


def test_each_value_knows_where_it_came_from(places: Places) -> None:
    places.write(places.local, '[incumbent]\nroot = "/a"\nnode = "n7"')
    places.write(places.system, '[incumbent]\nroot = "/b"\nsession_timeout = 12')

    settings = places.resolve({"node": None, "tick": 2}, INCUMBENT_ZOOKEEPER="zk:2181")

    assert settings.root == "/a"
    assert settings.session_timeout == 12.0
    assert settings.origins == {
        "zookeeper": "INCUMBENT_ZOOKEEPER",
        "root": str(places.local),
        "session_timeout": str(places.system),
        "tick": "--tick",
        "node": str(places.local),
        **dict.fromkeys(("data", "auth", "tls_ca", "tls_cert", "tls_key", "insecure"), "default"),
    }


def test_without_anything_the_defaults_hold_and_zookeeper_is_missing(places: Places) -> None:
    settings = places.resolve()

    assert (settings.root, settings.session_timeout, settings.tick) == ("/incumbent", None, None)
    assert settings.node
    assert settings.runtime is None
    with pytest.raises(SettingMissing) as caught:
        settings.hosts()
    below = places.below
    assert str(caught.value) == (
        "no ZooKeeper to connect to; looked at\n"
        "  --zookeeper: not given\n"
        "  INCUMBENT_ZOOKEEPER: not set\n"
        f"  {below}/work/incumbent.toml: no such file\n"
        f"  {below}/work/.incumbent/runtime.json: no `incumbent up` runs here\n"
        f"  {below}/run/incumbent: no running `incumbent up`\n"
        f"  /run/user/{UID}/incumbent: no running `incumbent up`\n"
        f"  {below}/state/incumbent/run: no running `incumbent up`\n"
        f"  {below}/config/incumbent/agent.toml: no such file\n"
        f"  {below}/etc/agent.toml: no such file\n"
        "start one here with `incumbent up`, or name one with --zookeeper HOST:PORT "
        "(`incumbent server --data DIR` is one)"
    )


def test_a_file_without_the_setting_is_told_from_one_that_is_absent(places: Places) -> None:
    places.write(places.local, '[component.web]\ncommand = "web"')

    looked = dict(places.resolve().looked)

    assert looked[str(places.local)] == "no `zookeeper` in [incumbent]"


def test_another_terminal_finds_up_its_agent_and_its_times(places: Places) -> None:
    runtime = places.run_up("127.0.0.1:40001", places.below / "elsewhere", session_timeout=4.0)

    settings = places.resolve()

    assert settings.hosts() == "127.0.0.1:40001"
    assert (settings.root, settings.session_timeout, settings.tick) == ("/up", 4.0, 0.0)
    assert settings.runtime == runtime
    assert settings.agent_folders == (Path(runtime.data), settings.data)


def test_an_agent_started_beside_up_does_not_take_its_name_or_data(places: Places) -> None:
    places.run_up("127.0.0.1:40001", node="the-node-of-up")

    settings = places.resolve()

    assert settings.node != "the-node-of-up"
    assert settings.data == agent_data(places.environ, UID)


def test_up_is_forgotten_when_another_zookeeper_is_named(places: Places) -> None:
    places.run_up("127.0.0.1:40001")

    settings = places.resolve({"zookeeper": "zk1"})

    assert settings.runtime is None
    assert settings.agent_folders == (settings.data,)


def test_the_root_and_times_of_up_are_not_those_of_another_zookeeper(places: Places) -> None:
    places.run_up("127.0.0.1:40001", session_timeout=4.0)

    other = places.resolve({"zookeeper": "zk1"})
    same = places.resolve({"zookeeper": "127.0.0.1:40001"})

    assert (other.root, other.session_timeout, other.tick) == ("/incumbent", None, None)
    assert (same.root, same.session_timeout, same.tick) == ("/up", 4.0, 0.0)


def test_an_up_that_has_ended_is_passed_over_and_said(places: Places) -> None:
    places.run_up("127.0.0.1:40001", start_time=1)

    settings = places.resolve()

    assert settings.zookeeper is None
    here = dict(settings.looked)[str(runtime_file.beside(places.folder))]
    assert here.startswith(f"left by an `incumbent up` that has ended (pid {os.getpid()}); ")


def test_in_the_folder_of_an_up_that_does_not_run_anothers_is_not_meant(places: Places) -> None:
    places.run_up("up-elsewhere:1", places.below / "elsewhere")
    assert places.resolve().zookeeper == "up-elsewhere:1"
    (places.folder / ".incumbent").mkdir()

    settings = places.resolve()

    assert settings.zookeeper is None
    here = dict(settings.looked)[str(runtime_file.beside(places.folder))]
    assert "`incumbent up` starts this folder's, and those of others are not meant" in here


def test_of_two_ups_elsewhere_neither_is_guessed(places: Places) -> None:
    first = places.run_up("127.0.0.1:1", places.below / "a")
    run = places.below / "run" / "incumbent"
    (run / "other.json").write_bytes((run / f"{first.pid}.json").read_bytes())

    settings = places.resolve()

    assert settings.zookeeper is None
    assert dict(settings.looked)[str(run)].startswith("2 running `incumbent up`s (")


def test_a_file_named_on_the_command_line_is_taken_for_the_local_one(places: Places) -> None:
    named = places.below / "other" / "shop.toml"
    places.write(named, '[incumbent]\nroot = "/shop"')
    places.write(places.local, '[incumbent]\nroot = "/local"')
    places.run_up("127.0.0.1:7", named.parent)

    settings = resolve(environ=places.environ, folder=places.folder, file=named, uid=UID)

    assert (settings.root, settings.hosts()) == ("/shop", "127.0.0.1:7")


def test_paths_are_taken_from_where_they_are_written(places: Places) -> None:
    places.write(places.local, '[incumbent]\ndata = "state"')
    assert places.resolve().data == places.folder / "state"

    assert places.resolve(INCUMBENT_DATA="x/../y").data == Path.cwd() / "y"
    assert places.resolve({"data": Path("/z")}).data == Path("/z")


def test_numbers_may_come_from_the_environment(places: Places) -> None:
    settings = places.resolve(INCUMBENT_SESSION_TIMEOUT="7.5", INCUMBENT_TICK="0")

    assert (settings.session_timeout, settings.tick) == (7.5, 0.0)


def test_an_empty_variable_is_as_good_as_none(places: Places) -> None:
    assert places.resolve(INCUMBENT_ROOT="").origins["root"] == "default"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zookeper = 'a'", "incumbent.zookeper: unknown key; did you mean `zookeeper`?"),
        ("colour = 1", "incumbent.colour: unknown key; expected one of zookeeper, root, "),
        ("zookeeper = 2181", 'incumbent.zookeeper: expected "HOST:PORT" or several'),
        ("zookeeper = 'a:99999'", 'incumbent.zookeeper: expected "HOST:PORT" or several'),
        ("zookeeper = 'a, ,b'", 'incumbent.zookeeper: expected "HOST:PORT" or several'),
        ("zookeeper = 'a:1/x'", "what follows a `/` is the setting `root`"),
        ("root = 'x'", "incumbent.root: expected a znode's path, like \"/incumbent\"; got 'x'"),
        ("root = '/'", "the supervisor needs a znode of its own"),
        ("session_timeout = '10s'", "incumbent.session_timeout: expected a number of seconds"),
        ("session_timeout = 0", "incumbent.session_timeout: expected from 0.1 to 86400 seconds"),
        ("tick = -1", "incumbent.tick: expected a number of seconds from 0, got -1"),
        ("tick = nan", "incumbent.tick: expected a number of seconds from 0, got nan"),
        ("node = 'a/b'", "incumbent.node: 'a/b' is no node's name: expected only letters"),
        ("data = '~/x'", "incumbent.data: `~` is not expanded"),
    ],
)
def test_a_wrong_value_says_where_and_what_was_expected(
    places: Places, line: str, expected: str
) -> None:
    places.write(places.local, f"[incumbent]\n\n{line}")

    with pytest.raises(SpecErrors) as caught:
        places.resolve()

    assert str(caught.value).startswith(f"{places.local}:3: incumbent.")
    assert expected in str(caught.value)


def test_all_wrong_values_of_a_file_come_together(places: Places) -> None:
    places.write(places.local, "[incumbent]\nroot = 1\nnode = 2\ncolour = 3")

    with pytest.raises(SpecErrors) as caught:
        places.resolve()

    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]


def test_a_wrong_flag_or_variable_is_named(places: Places) -> None:
    for flags, environ, place in (
        ({"session_timeout": -1}, {}, "--session-timeout: "),
        ({}, {"INCUMBENT_SESSION_TIMEOUT": "soon"}, "INCUMBENT_SESSION_TIMEOUT: "),
        ({"zookeeper": "zk\udcff:2181"}, {}, "--zookeeper: "),
    ):
        with pytest.raises(SpecErrors) as caught:
            places.resolve(flags, **environ)
        assert str(caught.value).startswith(place + "expected")


@pytest.mark.parametrize(
    "hosts",
    ["zk", "zk:1", "10.0.0.1:2181,10.0.0.2:2181", "[::1]:2181", "a.b-c:1 , d", "[fe80::1%lo]:1"],
)
def test_every_way_to_name_servers_is_taken(places: Places, hosts: str) -> None:
    assert places.resolve({"zookeeper": hosts}).hosts() == hosts.replace(" , ", ",")


def test_the_agents_data_is_the_systems_for_root_and_the_users_for_a_user() -> None:
    assert agent_data({"HOME": "/home/x"}, 0) == Path("/var/lib/incumbent")
    assert agent_data({"HOME": "/home/x"}, 7) == Path("/home/x/.local/state/incumbent")
    assert agent_data({"XDG_STATE_HOME": "/s"}, 7) == Path("/s/incumbent")
    assert agent_data({}, 0, up=Path("/shop")) == Path("/shop/.incumbent/agent")


def test_a_name_can_be_part_of_a_path_and_of_a_command_line() -> None:
    for good in ("web", "web-1.eu_2", "_x", "1", "a" * 64):
        assert name_problem(good) is None
    for bad in ("", ".", "..", "a/b", "-x", "a b", "a" * 65, "é", "a\n"):
        assert name_problem(bad)


def test_settings_import_fast_libraries_only() -> None:
    code = "import sys, incumbent.settings; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert not {"typer", "rich", "msgspec", "asyncio"} & set(loaded.stdout.split())


def test_every_key_is_a_field() -> None:
    assert set(KEYS) <= set(Settings.__dataclass_fields__)


def test_credentials_come_from_a_file_that_only_its_owner_reads(places: Places) -> None:
    secret = places.below / "agents.auth"
    places.write(secret, "# who we are\ndigest:agents:s3cret:with:colons\n\nsasl:n1:word\n")
    secret.chmod(0o600)
    places.write(places.system, f'[incumbent]\nauth = "{secret}"\ntls_ca = "ca.pem"\n')

    found = places.resolve().credentials()

    assert found.auth == (("digest", b"agents:s3cret:with:colons"), ("sasl", b"n1:word"))
    assert found.tls_ca == str(places.system.parent / "ca.pem")
    assert not found.insecure
    assert "s3cret" not in repr(found) + repr(places.resolve())
    assert found.shown == "digest:agents, sasl:n1"
    assert Credentials.from_json(found.to_json()) == found


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602])
def test_a_credentials_file_that_others_reach_is_refused(places: Places, mode: int) -> None:
    secret = places.below / "agents.auth"
    places.write(secret, "digest:agents:s3cret\n")
    secret.chmod(mode)

    with pytest.raises(SpecErrors) as caught:
        places.resolve(INCUMBENT_AUTH=str(secret)).credentials()

    assert str(caught.value) == f"{secret}: others can read or change it: chmod 600 {secret}"


def test_what_is_wrong_with_a_credential_is_said_without_it(places: Places) -> None:
    secret = places.below / "agents.auth"
    places.write(secret, "digest:a:b\ns3cret\n")
    secret.chmod(0o600)

    with pytest.raises(SpecErrors) as caught:
        places.resolve({"auth": secret}).credentials()

    assert str(caught.value) == (
        f"{secret}:2: expected SCHEME:CREDENTIAL, as in digest:name:password"
    )


def test_an_up_has_a_credential_of_its_own(places: Places) -> None:
    places.write(places.system, '[incumbent]\nauth = "/etc/mine"\ntls_ca = "/etc/ca.pem"\n')
    places.run_up("up:1", auth="/up/operators.auth")

    here = places.resolve(INCUMBENT_AUTH="/home/mine")
    elsewhere = places.resolve({"zookeeper": "elsewhere:1"})
    by_flag = places.resolve({"auth": "/flag"})

    assert (str(here.auth), here.tls_ca) == ("/up/operators.auth", None)
    assert (str(elsewhere.auth), str(elsewhere.tls_ca)) == ("/etc/mine", "/etc/ca.pem")
    assert str(by_flag.auth) == "/flag"


def test_insecure_is_true_or_false(places: Places) -> None:
    assert places.resolve(INCUMBENT_INSECURE="true").insecure
    assert not places.resolve(INCUMBENT_INSECURE="false").insecure
    with pytest.raises(SpecErrors, match="INCUMBENT_INSECURE: expected true or false, got 'yes'"):
        places.resolve(INCUMBENT_INSECURE="yes")


def test_what_a_node_allows_stands_in_its_own_file_and_nowhere_else(places: Places) -> None:
    limits = '[incumbent]\nallow_users = ["web"]\nallow_commands = ["/srv/app/*"]\n'
    places.write(places.system, limits)

    allowed = places.resolve().allowances

    assert (allowed.users, allowed.commands) == (("web",), ("/srv/app/*",))
    assert allowed.source == str(places.system)
    for elsewhere in (places.local, places.user):
        places.write(elsewhere, limits)
        with pytest.raises(SpecErrors, match="may say what a node allows"):
            places.resolve()
        elsewhere.unlink()


@pytest.mark.parametrize(
    "line", ['allow_users = "web"', "allow_users = [1]", 'allow_commands = ["redis-server"]']
)
def test_a_wrong_limit_is_said_and_not_passed_over(places: Places, line: str) -> None:
    places.write(places.system, f"[incumbent]\n{line}\n")

    with pytest.raises(SpecErrors, match="expected a list of"):
        places.resolve()


def test_a_nodes_labels_and_logs_stand_in_its_own_file_and_nowhere_else(places: Places) -> None:
    text = (
        '[incumbent]\nlabels = { rack = "a" }\n'
        '[logs]\nlisten = "10.0.0.1:7281"\ntls_cert = "n1.pem"\naddress = "n1:7281"\n'
    )
    places.write(places.system, text)

    found = places.resolve()

    assert found.labels == {"rack": "a"}
    assert found.logs is not None
    assert found.logs.url == "tls://n1:7281"
    assert found.logs.tls_cert == str(places.system.parent / "n1.pem")
    assert found.logs.readers == ("operators",)
    for elsewhere in (places.local, places.user):
        places.write(elsewhere, text)
        with pytest.raises(SpecErrors, match="may say which labels a node has"):
            places.resolve()
        elsewhere.unlink()
        places.write(elsewhere, '[logs]\nlisten = "127.0.0.1:1"\n')
        with pytest.raises(SpecErrors, match="may say to whom a node shows its logs"):
            places.resolve()
        elsewhere.unlink()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('listen = "10.0.0.1:7281"', "would leave this machine in clear text"),
        ('listen = "0.0.0.0:7281"\ntls_cert = "/x"', "say which with `address"),
        ('listen = "10.0.0.1"', 'expected "HOST:PORT"'),
        ('listen = "10.0.0.1:0"', 'expected "HOST:PORT"'),
        ("listen = 7281", 'expected "HOST:PORT", like "10.0.0.1:7281"; got an integer'),
        ('tls_cert = "/x"', 'expected `listen = "HOST:PORT"`'),
        ('listen = "127.0.0.1:1"\ntls_ca = "/x"', "expected this node's certificate"),
        ('listen = "127.0.0.1:1"\nlsiten = "x"', "did you mean `listen`?"),
        ('listen = "127.0.0.1:1"\nreaders = []', "expected a list of readers"),
        ('listen = "127.0.0.1:1"\nreaders = ["anybody"]', "only where"),
        ('listen = "127.0.0.1:1"\nreaders = ["sasl:me"]', 'expected "operators"'),
        ('listen = "127.0.0.1:1"\nreaders = ["x509:CN=a"]', "say with `tls_ca`"),
    ],
)
def test_logs_that_must_not_be_served_so_are_refused(places: Places, text: str, what: str) -> None:
    places.write(places.system, f"[logs]\n{text}\n")

    with pytest.raises(SpecErrors) as refused:
        places.resolve().served_logs()

    assert what in str(refused.value)
    assert "logs" in str(refused.value)


def test_a_command_on_a_node_does_not_mind_how_its_agent_serves_logs(places: Places) -> None:
    places.write(places.system, '[logs]\nlisten = "10.0.0.1:7281"\n')

    assert places.resolve().logs is not None


def test_logs_are_served_in_clear_text_where_somebody_accepts_it(places: Places) -> None:
    places.write(places.system, '[logs]\nlisten = "10.0.0.1:7281"\nreaders = ["anybody"]\n')

    found = places.resolve({"insecure": True}).served_logs()

    assert found is not None and found.url == "tcp://10.0.0.1:7281"


@pytest.mark.parametrize("value", ['"a"', "{ rack = 1 }", '{ "a/b" = "c" }'])
def test_a_wrong_label_is_said(places: Places, value: str) -> None:
    places.write(places.system, f"[incumbent]\nlabels = {value}\n")

    with pytest.raises(SpecErrors, match=r"incumbent\.labels"):
        places.resolve()
