"""Component files that are right, and the form of a spec in ZooKeeper."""

import json
from pathlib import Path

import pytest

from incumbent.errors import SpecError, SpecErrors
from incumbent.spec import Spec, changed_keys, decode, encode, parse_specs, read_specs
from incumbent.spec.limits import cgroup_files, rlimits

FULL = """\
[incumbent]
root = "/prod"                       # read by the settings, passed over here

[component.web]
command = "python3 -m http.server --directory 'my files' 8080"
env = { PORT = "8080", "A" = "1" }
env_file = "/etc/web.env"
cwd = "/srv"
stop_signal = "int"
stop_grace = 2
copies = 3
requires = ["/etc/hosts"]
nodes = ["n2", "n1", "n2"]
isolation = "swept"
on_unclean = "go"
on_failure = "quarantine-node"
max_failures = 3
window = 60
backoff = 0.5
backoff_most = 10
success_exit_codes = [3, 0]

[component.a-1_b]
command = ["sleep", "1 h"]
"""


def parse(text: str, **options: Path) -> tuple[Spec, ...]:
    return parse_specs(text.encode(), "incumbent.toml", **options)


def problems(text: str, **options: Path) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        parse(text, **options)
    return [str(problem) for problem in caught.value.problems]


def test_every_key_is_read_and_the_order_of_the_file_is_kept() -> None:
    web, other = parse(FULL)

    assert web == Spec(
        name="web",
        command=("python3", "-m", "http.server", "--directory", "my files", "8080"),
        env={"A": "1", "PORT": "8080"},
        env_file="/etc/web.env",
        cwd="/srv",
        stop_signal=2,
        stop_grace=2.0,
        copies=3,
        requires=("/etc/hosts",),
        nodes=("n1", "n2"),
        isolation="swept",
        on_unclean="go",
        on_failure="quarantine-node",
        max_failures=3,
        window=60.0,
        backoff=0.5,
        backoff_most=10.0,
        success_exit_codes=(0, 3),
    )
    assert other == Spec(name="a-1_b", command=("sleep", "1 h"))


def test_the_defaults_are_those_that_the_documents_give() -> None:
    (spec,) = parse('[component.a]\ncommand = "a"')

    assert (spec.copies, spec.stop_signal, spec.stop_grace) == (1, 15, None)
    assert (spec.cwd, spec.isolation, spec.on_unclean) == (None, None, "wait")
    assert spec.allows("any node")


def test_nodes_limits_who_may_run_it() -> None:
    (spec,) = parse('[component.a]\ncommand = "a"\nnodes = ["n1"]')

    assert spec.allows("n1")
    assert not spec.allows("n2")


@pytest.mark.parametrize(
    ("written", "number"),
    [('"SIGTERM"', 15), ('"TERM"', 15), ('"sigint"', 2), ("9", 9), ('"SIGUSR1"', 10)],
)
def test_a_signal_is_a_name_in_any_case_or_a_number(written: str, number: int) -> None:
    (spec,) = parse(f'[component.a]\ncommand = "a"\nstop_signal = {written}')

    assert spec.stop_signal == number


def test_under_up_relative_paths_are_taken_from_the_files_folder(tmp_path: Path) -> None:
    text = '[component.a]\ncommand = "a"\n[component.b]\ncommand = "b"\ncwd = "x/../y"\n'
    text += 'env_file = ".env"'

    a, b = parse(text, folder=tmp_path)

    assert a.cwd == str(tmp_path)
    assert b.cwd == str(tmp_path / "y")
    assert b.env_file == str(tmp_path / ".env")


def test_for_other_nodes_a_relative_path_is_refused() -> None:
    text = '[component.a]\ncommand = "a"\ncwd = "web"'

    assert problems(text) == [
        "incumbent.toml:3: component.a.cwd: expected an absolute path, got 'web': "
        "it is looked up on the node that starts the program"
    ]


def test_a_quoted_operator_is_an_argument_a_bare_one_is_a_mistake() -> None:
    (spec,) = parse("""[component.a]\ncommand = "grep '|' x" """)
    assert spec.command == ("grep", "|", "x")

    (problem,) = problems('[component.a]\ncommand = "a && b"')
    assert "no shell runs this, and `&&` would be an argument" in problem

    (literal,) = parse('[component.a]\ncommand = ["a", "&&", "b"]')
    assert literal.command == ("a", "&&", "b")


def test_variables_that_incumbent_sets_cannot_be_set() -> None:
    (problem,) = problems('[component.a]\ncommand = "a"\nenv.INCUMBENT_EPOCH = "7"')

    assert problem.startswith("incumbent.toml:3: component.a.env.INCUMBENT_EPOCH: ")


def test_all_problems_of_a_file_come_together_in_the_order_of_its_lines() -> None:
    found = problems('x = 1\n[component.a]\ncopies = 0\n[component.b]\ncommand = ""\nnode = "n1"')

    assert [line.split(": ")[0] for line in found] == [
        "incumbent.toml:1",
        "incumbent.toml:2",
        "incumbent.toml:3",
        "incumbent.toml:5",
        "incumbent.toml:6",
    ]
    assert "did you mean `nodes`?" in found[-1]


def test_bytes_that_are_no_text_are_said_with_their_line() -> None:
    with pytest.raises(SpecErrors) as caught:
        parse_specs(b"# fine\n# caf\xe9\n", "incumbent.toml")

    assert str(caught.value) == "incumbent.toml:2: not UTF-8: expected a text file"


def test_a_file_from_windows_is_read_like_any_other() -> None:
    (spec,) = parse_specs(b'\xef\xbb\xbf[component.a]\r\ncommand = "a"\r\n', "incumbent.toml")

    assert spec.command == ("a",)


def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.toml", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(SpecErrors) as caught:
            read_specs(path)
        assert why in str(caught.value)


def test_a_spec_survives_zookeeper() -> None:
    for spec in parse(FULL):
        assert decode(encode(spec), "/incumbent/components/web") == spec


def test_equal_specs_have_equal_bytes_whatever_the_order_in_the_file() -> None:
    one = parse('[component.a]\ncommand = "a"\nenv = { B = "2", A = "1" }\nnodes = ["y", "x"]')
    two = parse('[component.a]\nnodes = ["x", "y"]\nenv = { A = "1", B = "2" }\ncommand = ["a"]')

    assert encode(one[0]) == encode(two[0])


def test_the_bytes_are_a_public_format() -> None:
    (spec,) = parse('[component.a]\ncommand = "a b"\nenv.X = "é"')

    assert encode(spec).decode() == (
        '{"v":1,"name":"a","command":["a","b"],"env":{"X":"é"},"env_file":null,"cwd":null,'
        '"stop_signal":15,"stop_grace":null,"copies":1,"requires":[],"nodes":[],'
        '"isolation":null,"on_unclean":"wait","labels":{},"user":null,"umask":null,"limits":{},'
        '"stop_http":null,"on_failure":"backoff","max_failures":5,'
        '"window":600.0,"backoff":1.0,"backoff_most":60.0,"success_exit_codes":[],'
        '"ready":null,"live":null,"before_start":null,"after_start":null,"before_stop":null,'
        '"after_stop":null,"on_fail":null,'
        '"config":{},"on_config":"restart","debounce":5.0,"debounce_max":60.0,'
        '"max_parallel":1,"auto_revert":false}'
    )


def test_limits_and_umask_are_written_as_people_write_them() -> None:
    (spec,) = parse(
        '[component.a]\ncommand = "a"\numask = "027"\n'
        'limits = { memory = "512M", cpu = 2, nofile = 4096, core = "unlimited" }'
    )
    (same,) = parse(
        '[component.a]\ncommand = "a"\numask = 0o027\n'
        "limits = { core = -1, nofile = 4096, cpu = 2.0, memory = 536870912 }".replace(
            "-1", '"unlimited"'
        )
    )

    assert spec.umask == 0o027
    assert spec.limits == {"core": -1, "cpu": 2.0, "memory": 512 << 20, "nofile": 4096}
    assert encode(spec) == encode(same)
    assert rlimits(spec.limits) == {"RLIMIT_CORE": -1, "RLIMIT_NOFILE": 4096}
    assert cgroup_files(spec.limits) == {
        "cpu.max": "200000 100000",
        "memory.max": str(512 << 20),
    }


def test_the_trees_first_process_is_not_counted_against_its_program() -> None:
    assert cgroup_files({"pids": 10}) == {"pids.max": "11"}
    assert cgroup_files({"pids": -1, "memory": -1}) == {"pids.max": "max", "memory.max": "max"}


def test_a_newer_spec_is_refused_with_the_next_step() -> None:
    with pytest.raises(SpecError) as caught:
        decode(b'{"v":2,"name":"a","something":[]}', "/incumbent/components/a")

    assert str(caught.value) == (
        "/incumbent/components/a: v: written by a newer Incumbent (version 2, this one reads 1): "
        "upgrade Incumbent on this node, or apply the file again with this one"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"v":"1"}',
        b'{"v":1}',
        b'{"v":1,"name":"a","command":"a"}',
    ],
)
def test_bytes_that_are_no_spec_are_an_error_with_their_path(data: bytes) -> None:
    with pytest.raises(SpecError) as caught:
        decode(data, "/incumbent/components/a")

    assert str(caught.value).startswith("/incumbent/components/a: not a spec of ours: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("command", []),
        ("copies", 0),
        ("copies", 1001),
        ("stop_signal", 0),
        ("stop_grace", -1),
        ("cwd", "srv"),
        ("requires", ["x"]),
        ("nodes", ["a/b"]),
        ("name", "-x"),
        ("isolation", "docker"),
        ("user", "a b"),
        ("umask", 512),
        ("stop_http", "http://example.com/quit"),
        ("limits", {"wished-for": 1}),
        ("on_unclean", "maybe"),
    ],
)
def test_a_spec_written_by_hand_is_held_to_the_same_bounds(key: str, value: object) -> None:
    (spec,) = parse('[component.a]\ncommand = "a"')
    said = json.loads(encode(spec)) | {key: value}

    with pytest.raises(SpecError) as caught:
        decode(json.dumps(said).encode(), "/a")

    assert f"$.{key}" in str(caught.value)


def test_a_key_added_without_a_new_version_is_passed_over() -> None:
    (spec,) = parse('[component.a]\ncommand = "a"')
    said = json.loads(encode(spec)) | {"comment": "for people"}

    assert decode(json.dumps(said).encode(), "/a") == spec


def test_changed_keys_names_what_differs_and_each_variable() -> None:
    old, new = (
        parse(f'[component.a]\ncommand = "a"\n{more}')[0]
        for more in ('env = { A = "1", B = "2" }', 'env = { B = "3", C = "4" }\ncopies = 2')
    )

    assert changed_keys(old, new) == ["env.A", "env.B", "env.C", "copies"]
    assert changed_keys(new, new) == []


def test_what_is_wrong_with_a_secret_is_said_without_it() -> None:
    text = b'[component.web]\ncommand = "web --token=hunter2 \\"x"\nenv = { DB_PASSWORD = 4711, PORT = 80 }\n'

    with pytest.raises(SpecErrors) as caught:
        parse_specs(text, "c.toml")

    said = str(caught.value)
    assert "hunter2" not in said and "4711" not in said
    assert "--token=***" in said
    assert "env.DB_PASSWORD: expected a string, got an integer; write it in quotes" in said
    assert 'env.PORT: expected a string, got an integer; write "80"' in said
