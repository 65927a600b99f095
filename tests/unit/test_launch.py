"""What a program is started with, and why it cannot be started here."""

import os
import pwd
from pathlib import Path

import pytest

from incumbent.allowances import EVERYTHING, Allowances
from incumbent.errors import SpecErrors
from incumbent.launch import (
    foreground_switch,
    launch,
    missing_requirements,
    parse_env_file,
    program_environment,
    refusal,
    user_problem,
    went_background,
)
from incumbent.spec import Spec
from incumbent.spec.config import Use

BASE = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LANG": "en_US.UTF-8", "SECRET": "of the agent"}


def program(folder: Path, name: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def problem(spec: Spec, base: dict[str, str] | None = None) -> str:
    with pytest.raises(SpecErrors) as caught:
        launch(spec, f"{spec.name}/0", "n1", 7, base or BASE)
    return str(caught.value)


def test_a_program_gets_three_variables_of_ours_its_own_and_who_it_is() -> None:
    spec = Spec(name="web", command=("web",), env={"PORT": "80"})

    env = program_environment(spec, "web/0", "n1", 12, BASE, {})

    assert env == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "LANG": "en_US.UTF-8",
        "PORT": "80",
        "INCUMBENT_COMPONENT": "web",
        "INCUMBENT_SEAT": "web/0",
        "INCUMBENT_NODE": "n1",
        "INCUMBENT_EPOCH": "12",
    }


def test_without_an_environment_of_ours_there_are_defaults() -> None:
    env = program_environment(Spec(name="a", command=("a",)), "a/0", "n1", 1, {}, {})

    assert env["PATH"].split(":")[-1] == "/bin"
    assert (env["HOME"], env["LANG"]) == ("/", "C.UTF-8")


def test_env_goes_before_env_file_and_incumbent_before_both() -> None:
    spec = Spec(name="a", command=("a",), env={"B": "env"})
    file = {"A": "file", "B": "file", "PATH": "/file", "INCUMBENT_EPOCH": "file"}

    env = program_environment(spec, "a/0", "n1", 5, BASE, file)

    assert (env["A"], env["B"], env["PATH"], env["INCUMBENT_EPOCH"]) == (
        "file",
        "env",
        "/file",
        "5",
    )


def test_a_user_has_its_own_home_and_name_in_its_environment() -> None:
    root = pwd.getpwuid(0)
    spec = Spec(name="web", command=("web",), user=root.pw_name)

    env = program_environment(spec, "web/0", "n1", 1, {**BASE, "HOME": "/of/the/agent"}, {})

    assert (env["HOME"], env["USER"], env["LOGNAME"]) == (root.pw_dir, "root", "root")


def test_a_user_that_a_node_lacks_is_said() -> None:
    spec = Spec(name="web", command=("sh",), user="no-such-user")

    assert user_problem(spec) == "there is no user no-such-user on this node"
    assert "there is no user no-such-user" in problem(spec)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's program")
def test_root_starts_another_users_program_with_all_its_groups() -> None:
    nobody = pwd.getpwnam("nobody")

    found = launch(Spec(name="web", command=("sh",), user="nobody"), "web/0", "n1", 1, BASE)

    assert found.identity is not None
    assert (found.identity.uid, found.identity.gid) == (nobody.pw_uid, nobody.pw_gid)
    assert nobody.pw_gid in found.identity.groups
    assert (
        launch(Spec(name="web", command=("sh",), user="root"), "web/0", "n1", 1, BASE).identity
        is None
    )


def test_an_env_file_is_read_as_written() -> None:
    text = """
# a comment
BARE=a b # no comment, part of the value
 SPACED = x\t
export SHELL_STYLE=1
EMPTY=
SINGLE='a "b" $c \\n #' # a comment
DOUBLE="a 'b' \\"c\\" \\$d \\n\\\\ \\x"
EQUALS=a=b
LAST=1
LAST=2
"""
    assert parse_env_file(text, "x.env") == {
        "BARE": "a b # no comment, part of the value",
        "SPACED": "x",
        "SHELL_STYLE": "1",
        "EMPTY": "",
        "SINGLE": 'a "b" $c \\n #',
        "DOUBLE": "a 'b' \"c\" $d \n\\ \\x",
        "EQUALS": "a=b",
        "LAST": "2",
    }


def test_every_wrong_line_of_an_env_file_is_named_and_no_value_is_shown() -> None:
    text = 'GOOD=1\nhunter2\n1X=hunter2\nOPEN=\'hunter2\nREST="a" hunter2\r\nNUL=hunter2\0\n'

    with pytest.raises(SpecErrors) as caught:
        parse_env_file(text, "x.env")

    assert str(caught.value).splitlines() == [
        "x.env:2: expected KEY=VALUE, with a KEY of letters, digits and `_`",
        "x.env:3: expected KEY=VALUE, with a KEY of letters, digits and `_`",
        "x.env:4: OPEN: the quote ' is not closed on this line",
        "x.env:5: REST: expected nothing after the closing quote",
        "x.env:6: NUL: a null character cannot be part of a variable",
    ]


def test_an_env_file_that_is_absent_is_said_with_its_path(tmp_path: Path) -> None:
    spec = Spec(name="a", command=("sh",), env_file=str(tmp_path / "none"))

    expected = f"{tmp_path / 'none'}: the env_file cannot be read: no such file or directory"
    assert problem(spec) == expected


def test_what_a_node_lacks_is_listed(tmp_path: Path) -> None:
    spec = Spec(name="db", command=("sh",), requires=("/etc", "/nowhere/a", str(tmp_path / "b")))

    assert missing_requirements(spec) == ["/nowhere/a", str(tmp_path / "b")]
    assert problem(spec) == f"db: requires: missing on n1: /nowhere/a, {tmp_path / 'b'}"


def test_a_launch_has_the_command_as_written_and_where_it_was_found(tmp_path: Path) -> None:
    found = program(tmp_path, "prog")
    spec = Spec(
        name="a", command=("prog", "-v"), cwd=str(tmp_path), env={"PATH": f"/bin:{tmp_path}"}
    )

    ready = launch(spec, "a/0", "n1", 1, BASE)

    assert (ready.argv, ready.executable, ready.cwd) == (("prog", "-v"), str(found), str(tmp_path))


def test_a_program_with_a_slash_is_looked_up_from_its_folder(tmp_path: Path) -> None:
    found = program(tmp_path, "prog")
    spec = Spec(name="a", command=("./prog",), cwd=str(tmp_path))

    assert launch(spec, "a/0", "n1", 1, BASE).executable == str(found)


def test_without_a_folder_a_program_runs_in_the_root() -> None:
    assert launch(Spec(name="a", command=("sh",)), "a/0", "n1", 1, BASE).cwd == "/"


def test_why_a_command_cannot_be_run_is_said(tmp_path: Path) -> None:
    program(tmp_path, "redis-server")
    program(tmp_path, "plain.txt", 0o644)
    base = {"PATH": str(tmp_path)}

    def of(command: str) -> str:
        return problem(Spec(name="a", command=(command,)), base)

    assert of("redis-sever") == (
        f"a: command: no `redis-sever` in PATH ({tmp_path}); did you mean `redis-server`?"
    )
    assert of("zzz") == (f"a: command: no `zzz` in PATH ({tmp_path}); install it, or name its path")
    assert of("/nowhere/x") == "a: command: there is no /nowhere/x"
    assert of(str(tmp_path)) == f"a: command: {tmp_path} is a folder"
    if os.geteuid() != 0 or not os.access(tmp_path / "plain.txt", os.X_OK):
        expected = f"a: command: {tmp_path}/plain.txt is not executable (chmod +x it)"
        assert of("plain.txt") == of(f"{tmp_path}/plain.txt") == expected


def test_why_a_folder_cannot_be_entered_is_said(tmp_path: Path) -> None:
    file = program(tmp_path, "file")

    nowhere = problem(Spec(name="a", command=("sh",), cwd="/nowhere"))
    no_folder = problem(Spec(name="a", command=("sh",), cwd=str(file)))

    assert nowhere == "a: cwd: there is no folder /nowhere on this node"
    assert no_folder == f"a: cwd: {file} is not a folder"


@pytest.mark.parametrize(
    ("command", "switch"),
    [
        ("redis-server /etc/redis/redis.conf", "`--daemonize no`"),
        ("/usr/sbin/nginx", "`nginx -g 'daemon off;'`"),
        ("pg_ctl start -D /x", "`postgres -D DIRECTORY` itself, not pg_ctl"),
        ("/usr/lib/postgresql/15/bin/postgres -D /x", "`postgres -D"),
        ("apache2ctl start", "`-D FOREGROUND`"),
        ("httpd", "`-D FOREGROUND`"),
        ("php-fpm8.2", "`--nodaemonize`"),
        ("haproxy -D -f x", "`-db`"),
        ("memcached -d", "no `-d`"),
        ("env X=1 nginx", "`nginx -g"),
        ("myserver", "its foreground switch"),
    ],
)
def test_the_switch_of_each_program_is_named(command: str, switch: str) -> None:
    assert foreground_switch(command.split()).startswith(switch)


def test_a_program_inside_a_shells_string_is_recognized() -> None:
    assert foreground_switch(["sh", "-c", "exec memcached -d"]) == "no `-d`"
    assert foreground_switch(["sh", "-c", "it's broken"]) == "its foreground switch"


def test_a_main_process_that_ends_well_and_soon_with_children_has_daemonized() -> None:
    reason = went_background(["nginx"], 0, 0.12, 3)

    assert reason == (
        "put itself in the background: nginx ended with 0 after 0.1 s and left 3 processes; "
        "use `nginx -g 'daemon off;'`"
    )
    assert went_background(["nginx"], 0, 0.1, 1).endswith(
        "left 1 process; use `nginx -g 'daemon off;'`"
    )  # type: ignore[union-attr]
    assert went_background(["nginx"], 1, 0.1, 3) is None
    assert went_background(["nginx"], None, 0.1, 3) is None
    assert went_background(["nginx"], 0, 0.1, 0) is None
    assert went_background(["nginx"], 0, 5.0, 3) is None


def test_what_is_closed_to_us_is_passed_over_in_path_and_said_elsewhere(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)  # closed to everybody, root too
    program(tmp_path, "there")
    path = {"PATH": f"{loop}:{tmp_path}"}
    spec = Spec(name="web", command=("there",), requires=(f"{loop}/device",))

    found = launch(Spec(name="web", command=("there",)), "web/0", "n1", 1, path)

    assert found.executable == str(tmp_path / "there")
    assert missing_requirements(spec) == [f"{loop}/device"]
    assert "no `absent` in PATH" in problem(Spec(name="web", command=("absent",)), path)
    assert "symbolic links" in problem(Spec(name="web", command=("there",), cwd=str(loop)), path)


def test_an_env_file_without_an_end_holds_up_no_agent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o640)

    for path in (tmp_path / "pipe", "/dev/zero"):
        said = problem(Spec(name="a", command=("sh",), env_file=str(path)))
        assert said == f"{path}: the env_file cannot be read: not a file; name an ordinary one"


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666])
def test_an_env_file_that_others_reach_is_refused_with_what_to_do(
    tmp_path: Path, mode: int
) -> None:
    file = tmp_path / "env"
    file.write_text("PASSWORD=hunter2\n")
    file.chmod(mode)
    spec = Spec(name="a", command=("sh",), env_file=str(file))

    with pytest.raises(SpecErrors) as caught:
        launch(spec, "a/0", "n1", 1, BASE)

    why = f"{file} may have secrets, and others can read or change it: chmod o=,g-w {file}"
    assert str(caught.value) == f"{file}: env_file: {why}"
    assert refusal(spec, BASE, EVERYTHING) == why
    file.chmod(0o640)
    assert launch(spec, "a/0", "n1", 1, BASE).env["PASSWORD"] == "hunter2"
    assert refusal(spec, BASE, EVERYTHING) == ""


def test_what_a_node_does_not_allow_is_not_launched_whatever_its_path(tmp_path: Path) -> None:
    evil = tmp_path / "sleep"
    evil.write_text("#!/bin/sh\n")
    evil.chmod(0o755)
    allowed = Allowances(commands=("/usr/bin/sleep", "/bin/sleep"), source="/etc/x")
    plain = Spec(name="a", command=("sleep", "1"))
    by_path = Spec(name="a", command=("sleep", "1"), env={"PATH": str(tmp_path)})
    by_folder = Spec(name="a", command=("./sleep",), cwd=str(tmp_path))

    launched = launch(plain, "a/0", "n1", 1, BASE, allowed)

    assert launched.argv == (launched.executable, "1"), "what was judged is what is run"
    for spec in (by_path, by_folder, Spec(name="a", command=("sh", "-c", "sleep 1"))):
        assert "this node does not run" in refusal(spec, BASE, allowed)
        with pytest.raises(SpecErrors, match="this node does not run"):
            launch(spec, "a/0", "n1", 1, BASE, allowed)


def test_a_node_that_does_not_allow_its_agents_user_runs_nothing() -> None:
    allowed = Allowances(users=("nobody-else",), source="/etc/x")

    assert "this node runs nothing as" in refusal(Spec(name="a", command=("sh",)), BASE, allowed)


def test_configuration_that_loads_code_is_refused_where_commands_are_limited() -> None:
    spec = Spec(name="web", command=("/bin/true",), config={"LD_PRELOAD": Use(key="web.so")})
    allowed = Allowances(commands=("/bin/true",), source="agent.toml")

    assert "LD_PRELOAD is set for it" in refusal(spec, BASE, allowed)
    with pytest.raises(SpecErrors, match="LD_PRELOAD is set for it"):
        launch(spec, "web/0", "n1", 1, BASE, allowed)


def test_what_the_tree_may_run_is_judged_where_its_own_path_finds_it_and_there_it_is_run(
    tmp_path: Path,
) -> None:
    evil = tmp_path / "sleep"
    evil.write_text("#!/bin/sh\n")
    evil.chmod(0o755)
    allowed = Allowances(commands=("/usr/bin/sleep", "/bin/sleep"), source="agent.toml")
    spec = Spec(name="web", command=("sleep", "1"), env={"PATH": str(tmp_path)})

    with pytest.raises(SpecErrors, match=f"this node does not run {evil}"):
        launch(spec, "web/0", "n1", 1, BASE, allowed)


def test_an_env_file_that_the_agent_wrote_for_the_tree_is_judged_as_the_tree_is(
    tmp_path: Path,
) -> None:
    allowed = Allowances(commands=("/usr/bin/sleep", "/bin/sleep"), source="agent.toml")
    file = tmp_path / "agent" / "config" / "web-0" / "E"
    file.parent.mkdir(parents=True)
    file.write_text("LD_PRELOAD=/tmp/evil.so\n")
    file.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(file)

    for path in (file, link):
        spec = Spec(name="web", command=("sleep", "1"), env_file=str(path))
        assert launch(spec, "web/0", "n1", 1, BASE, allowed).env["LD_PRELOAD"]
        with pytest.raises(SpecErrors, match="LD_PRELOAD is set for it"):
            launch(spec, "web/0", "n1", 1, BASE, allowed, tmp_path / "agent")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_env_file_that_is_somebody_elses_is_judged_as_the_tree_is(tmp_path: Path) -> None:
    allowed = Allowances(commands=("/usr/bin/sleep", "/bin/sleep"), source="agent.toml")
    file = tmp_path / "env"
    file.write_text("LD_PRELOAD=/tmp/evil.so\n")
    file.chmod(0o600)
    spec = Spec(name="web", command=("sleep", "1"), env_file=str(file))

    assert launch(spec, "web/0", "n1", 1, BASE, allowed).env["LD_PRELOAD"]
    os.chown(file, 65534, 65534)
    with pytest.raises(SpecErrors, match="LD_PRELOAD is set for it"):
        launch(spec, "web/0", "n1", 1, BASE, allowed)
