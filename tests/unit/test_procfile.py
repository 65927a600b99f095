"""A Procfile is read as it is meant, and what is wrong in it is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from incumbent.errors import SpecErrors
from incumbent.spec import read_specs, settings_of


def test_what_needs_a_shell_has_one_and_what_does_not_runs_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "Procfile"
    file.write_text(
        "# the shop\n"
        "web: bundle exec thin start -p 5000\n\n"
        "worker:  env QUEUE=* rake work\n"
        "db: DEBUG=1 'my db' --port $PORT\n"
    )

    web, worker, db = read_specs(file, folder=tmp_path)

    assert (web.name, web.command) == ("web", ("bundle", "exec", "thin", "start", "-p", "5000"))
    assert worker.command == ("/bin/sh", "-c", "env QUEUE=* rake work")
    assert db.command == ("/bin/sh", "-c", "DEBUG=1 'my db' --port $PORT")
    assert web.cwd == str(tmp_path)
    assert read_specs(file)[0].cwd is None


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "Procfile.dev"
    file.write_text("web\na b: x\nc:\nd: e 'f\ng: 1\ng: 2\n")

    with pytest.raises(SpecErrors) as caught:
        read_specs(file)

    assert str(caught.value).replace(str(file), "F").splitlines() == [
        "F:1: expected NAME: COMMAND, got 'web'",
        "F:2: 'a b' is no component's name: expected only letters, digits, `-`, `_` and `.`",
        "F:3: no command: expected c: program argument …",
        'F:4: a quote is not closed in "e \'f"',
        "F:6: g stands here for the second time; expected each name once",
    ]


def test_an_empty_one_says_what_was_expected(tmp_path: Path) -> None:
    file = tmp_path / "Procfile"
    file.write_text("# nothing\n")

    with pytest.raises(SpecErrors, match="nothing to run: expected lines NAME: COMMAND"):
        read_specs(file)


def test_the_settings_beside_it_count(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("web: sleep 1\n")
    (tmp_path / "incumbent.toml").write_text('[incumbent]\nroot = "/mine"\n')

    assert settings_of(tmp_path / "Procfile", {}).root == "/mine"


def test_a_wrong_setting_does_not_hide_what_is_wrong_with_the_components(tmp_path: Path) -> None:
    file = tmp_path / "incumbent.toml"
    file.write_text('[incumbent]\nrot = "/x"\n\n[component.web]\ncomand = "web"\n')

    with pytest.raises(SpecErrors) as caught:
        settings_of(file, {})

    said = str(caught.value)
    assert "incumbent.rot: unknown key; did you mean `root`?" in said
    assert "component.web.comand: unknown key; did you mean `command`?" in said


def test_a_broken_file_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "incumbent.toml"
    file.write_text("[component.web\n")

    with pytest.raises(SpecErrors) as caught:
        settings_of(file, {})

    assert len(caught.value.problems) == 1
