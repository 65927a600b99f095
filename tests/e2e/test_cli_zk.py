"""`incumbent zk …` as it is typed and piped, against a server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.nodes import INCUMBENT
from tests.e2e.terminals import Terminals, our_server

from incumbent.cli.dispatch import dispatch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


@dataclass
class Zk:
    """Commands below a znode of the test's own. `run` gives exit code, stdout, stderr."""

    hosts: str
    capfd: pytest.CaptureFixture[str]

    def run(self, command: str, *arguments: str | Path) -> tuple[int, str, str]:
        code = dispatch(["zk", command, *map(str, arguments), "--zookeeper", self.hosts])
        said = self.capfd.readouterr()
        return code, said.out, said.err

    def out(self, command: str, *arguments: str | Path) -> str:
        """Of a command that succeeds."""
        code, out, err = self.run(command, *arguments)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def zk(server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Zk:
    dispatch(["zk", "create", f"/{tmp_path.name}", "--zookeeper", server])
    capfd.readouterr()
    return Zk(f"{server}/{tmp_path.name}", capfd)


def test_what_is_written_is_read_back(zk: Zk) -> None:
    assert zk.out("create", "-p", "/a/b", "one") == "/a/b\n"
    assert zk.out("get", "/a/b") == "one"
    assert zk.out("set", "/a/b", "two") == "1\n"
    assert zk.out("ls") == "a\n"
    assert zk.out("ls", "/a/b") == ""
    assert json.loads(zk.out("ls", "-o", "json")) == ["a"]
    assert zk.out("rm", "-r", "/a") == ""
    assert zk.run("stat", "/a")[0] == 1


def test_what_is_not_there_is_said_with_where_to_look(zk: Zk) -> None:
    zk.out("create", "-p", "/a/b")

    for command in (("get",), ("ls",), ("tree",), ("stat",), ("rm",), ("acl",), ("set",)):
        more = ("x",) if command == ("set",) else ()
        said = "incumbent: there is no /a/c/d; `incumbent zk ls /a` shows what there is\n"
        assert zk.run(*command, "/a/c/d", *more) == (1, "", said)
    said = "incumbent: there is no /no/such, which --chroot or --zookeeper makes the / here\n"
    assert Zk(f"{zk.hosts}/no/such", zk.capfd).run("ls") == (
        1,
        "",
        said.replace("/no/such", f"/{zk.hosts.partition('/')[2]}/no/such"),
    )


def test_a_znode_that_cannot_be_made_is_refused_with_the_next_step(zk: Zk) -> None:
    zk.out("create", "/a")

    assert "there is no /b to make it in; -p makes" in zk.run("create", "/b/c")[2]
    assert "/a exists already; nothing was changed. `incumbent zk set`" in zk.run("create", "/a")[2]
    assert "incumbent server --ttl-znodes true" in zk.run("create", "/t", "--ttl", "5")[2]
    assert zk.out("ls") == "a\n"


def test_create_with_parents_is_content_with_what_is_there_unless_it_has_data(zk: Zk) -> None:
    zk.out("create", "/a", "kept")

    assert zk.out("create", "-p", "/a") == "/a\n"
    assert zk.run("create", "-p", "/a", "other")[0] == 1
    assert zk.run("create", "/a")[0] == 1
    assert zk.out("get", "/a") == "kept"


def test_the_tree_is_drawn(zk: Zk) -> None:
    for path in ("/a/x/deep", "/a/y", "/b"):
        zk.out("create", "-p", path, "1234")

    drawn = zk.out("tree")

    assert drawn.splitlines() == [
        "/",
        "├── a",
        "│   ├── x",
        "│   │   └── deep  4 B",
        "│   └── y  4 B",
        "└── b  4 B",
    ]
    assert zk.out("tree", "--depth", "0", "/a") == "/a\n"
    found = json.loads(zk.out("tree", "-o", "json"))
    assert [each["path"] for each in found["children"]] == ["/a", "/b"]


def test_a_stat_and_a_long_listing_have_zookeepers_fields(zk: Zk) -> None:
    zk.out("create", "/a", "data")

    stat = json.loads(zk.out("stat", "/a", "-o", "json"))
    assert (stat["dataLength"], stat["version"], stat["ephemeralOwner"]) == (4, 0, 0)
    assert f"czxid           {stat['czxid']:#x}\n" in zk.out("stat", "/a")
    assert zk.out("ls", "-l").splitlines()[1].split()[:4] == ["a", "0", "4", "0"]


def test_data_that_is_no_text_is_base64_in_json_and_itself_in_a_pipe(zk: Zk) -> None:
    subprocess.run(
        [*INCUMBENT, "zk", "create", "/bytes", "-", "--zookeeper", zk.hosts],
        input=b"\xff\x00\n",
        capture_output=True,
        check=True,
    )

    piped = subprocess.run(
        [*INCUMBENT, "zk", "get", "/bytes", "--zookeeper", zk.hosts],
        capture_output=True,
        check=True,
    )

    assert piped.stdout == b"\xff\x00\n"
    assert json.loads(zk.out("get", "/bytes", "-o", "json"))["data_base64"] == "/wAK"


def test_a_version_that_is_another_by_now_changes_nothing(zk: Zk) -> None:
    zk.out("create", "/a", "one")

    code, _, said = zk.run("set", "/a", "two", "--version", "3")

    assert (code, said) == (1, "incumbent: /a: its version is 0, not 3; nothing was changed\n")
    assert zk.run("rm", "/a", "--version", "3")[0] == 1
    assert zk.out("set", "/a", "two", "--version", "0") == "1\n"


def test_what_has_children_is_deleted_only_when_asked_to(zk: Zk) -> None:
    zk.out("create", "-p", "/a/b/c")

    code, _, said = zk.run("rm", "/a")

    assert (code, said) == (1, "incumbent: /a has 2 znodes below it; -r deletes them too\n")
    assert zk.run("rm", "/a/b")[2] == "incumbent: /a/b has 1 znode below it; -r deletes it too\n"
    assert zk.run("rm", "/")[0] == 2


def test_what_the_supervisor_keeps_is_deleted_only_when_named_twice(
    server: str, capfd: pytest.CaptureFixture[str]
) -> None:
    root = Zk(server, capfd)
    root.out("create", "-p", "/incumbent/control")

    code, _, said = root.run("rm", "/incumbent/control")

    assert code == 2
    assert "--yes /incumbent/control" in said
    assert root.out("rm", "/incumbent/control", "--yes", "/incumbent/control") == ""


def test_an_acl_is_written_as_it_is_read(zk: Zk) -> None:
    zk.out("create", "/a", "--acl", "world:anyone:cdrwa")

    assert zk.out("acl", "/a") == "world:anyone:cdrwa\n"
    shown = zk.out("acl", "/a", "--set", "world:anyone:ra", "--set", "digest:me:hash=:cdrwa")
    assert shown == "world:anyone:ra\ndigest:me:hash=:cdrwa\n"
    code, _, said = zk.run("set", "/a", "no")
    assert code == 1
    assert "not permitted by the znode's ACL" in said
    assert "expected SCHEME:ID:PERMISSIONS" in zk.run("acl", "/a", "--set", "anyone")[2]


def test_an_acl_for_whom_one_is_needs_to_be_somebody(zk: Zk) -> None:
    zk.out("create", "/mine")

    for words in (("create", "/other", "x", "--acl"), ("acl", "/mine", "--set")):
        code, _, err = zk.run(*words, "auth::cdrwa")
        assert code == 1
        assert "which is nobody: name a file" in err


def test_a_credential_comes_from_a_file_of_its_owners(zk: Zk, tmp_path: Path) -> None:
    file = tmp_path / "auth"
    file.write_text("digest:me:secret\n")
    file.chmod(0o644)
    assert "chmod 600" in zk.run("ls", "--auth-file", file)[2]
    file.chmod(0o600)

    zk.out("create", "/mine", "x", "--auth-file", file, "--acl", "auth::cdrwa")

    assert zk.run("get", "/mine")[0] == 1
    assert zk.out("get", "/mine", "--auth-file", file) == "x"


def test_copies_go_to_files_and_back(zk: Zk, tmp_path: Path) -> None:
    zk.out("create", "-p", "/app/config/db", "host")
    zk.out("set", "/app/config", "own")

    assert zk.run("cp", "-r", "zk:/app", tmp_path / "out")[::2] == (0, "incumbent: copied 3\n")
    assert (tmp_path / "out/config/db").read_text() == "host"
    assert (tmp_path / "out/config/__data__").read_text() == "own"
    (tmp_path / "out/config/db").write_text("other")
    assert zk.run("cp", "-r", tmp_path / "out", "zk:/app")[0] == 0
    assert zk.out("get", "/app/config/db") == "other"
    assert zk.out("get", "/app/config") == "own"
    assert zk.run("cp", "-r", "zk:/app", "zk:/twin")[0] == 0
    assert zk.out("get", "/twin/config/db") == "other"


def test_one_znode_is_copied_to_a_file_a_folder_or_stdout(zk: Zk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")

    assert zk.out("cp", tmp_path / "file", "zk:/a/b") == ""
    assert zk.out("cp", "zk:/a/b", "-") == "text"
    assert zk.out("cp", "zk:/a/b", tmp_path) == ""
    assert (tmp_path / "b").read_text() == "text"


def test_a_copy_that_cannot_be_says_why(zk: Zk, tmp_path: Path) -> None:
    zk.out("create", "-p", "/a/b")

    assert "write zk:/PATH for one" in zk.run("cp", "x", "y")[2]
    assert "copied into itself" in zk.run("cp", "-r", "zk:/a", "zk:/a/b/c")[2]
    assert "-r copies it with all" in zk.run("cp", tmp_path, "zk:/x")[2]
    assert "no such file" in zk.run("cp", tmp_path / "none", "zk:/x")[2]
    assert zk.run("cp", "zk:/none", "-")[0] == 1


def test_a_watch_tells_of_each_event_and_ends_when_asked(zk: Zk, tmp_path: Path) -> None:
    with Terminals(tmp_path) as terminals:
        command = [*INCUMBENT, "zk", "watch", "/app", "-r", "--count", "3", "-o", "json"]
        watching = terminals.start("watch", [*command, "--zookeeper", zk.hosts])
        watching.wait_for_complaint("watching /app")

        zk.out("create", "/app")
        zk.out("create", "/app/x")
        zk.out("set", "/app/x", "1")

        assert watching.ends() == 0
        events = [json.loads(line) for line in watching.lines()]
    assert [(each["event"], each["path"]) for each in events] == [
        ("created", "/app"),
        ("created", "/app/x"),
        ("changed", "/app/x"),
    ]
    assert zk.run("watch", "/app", "--timeout", "0.1")[0] == 4


def test_an_ephemeral_stays_until_stdin_ends(zk: Zk) -> None:
    keeping = subprocess.Popen(
        [*INCUMBENT, "zk", "create", "/mine", "--ephemeral", "--zookeeper", zk.hosts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeping.stdin is not None
    assert keeping.stdout is not None
    assert keeping.stdout.readline() == "/mine\n"
    assert "ephemeral" in zk.out("tree")

    keeping.stdin.close()

    assert keeping.wait(10) == 0
    keeping.stdout.close()
    assert zk.run("stat", "/mine")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "app"), "a path begins with /"),
        (("ls", "/app/"), "does not end with /"),
        (("create", "/a", "--ephemeral", "--ttl", "5"), "a znode is one of"),
        (("ls", "--chroot", "/other"), "give one of them"),
        (("create", "/a", "--container", "--sequential"), "give --container or --sequential"),
    ],
)
def test_a_wrong_call_says_what_was_expected(zk: Zk, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = zk.run(*arguments)

    assert code == 2
    assert said in err
