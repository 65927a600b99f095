"""What `doctor` finds: by real servers and folders, and for each way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path

from incumbent.cli.doctor import Finding, examine, on_containments, on_numbers
from incumbent.lease import Numbers
from incumbent.settings import resolve
from incumbent.testing import EmbeddedServer


def findings(tmp_path: Path, hosts: str | None, stop_grace: float | None = None) -> list[Finding]:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    settings = resolve(
        {"zookeeper": hosts, "data": tmp_path / "data"},
        environ=environ,
        folder=tmp_path,
        system=tmp_path / "none.toml",
    )
    return list(examine(settings, stop_grace))


def the(found: list[Finding], what: str) -> Finding:
    (one,) = [each for each in found if each.what == what]
    return one


def test_a_server_that_answers_a_session_and_its_times_are_said_to_be_well(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        found = findings(tmp_path, server.hosts)

    assert the(found, f"server {server.hosts}").found.startswith("standalone, in ")
    assert the(found, "session").found.startswith("10 s are granted")
    assert the(found, "times").found.startswith("an outage of up to 4.4 s stops nothing: beat 1 + ")
    assert the(found, "nodes").state == "note"
    assert not [each for each in found if each.state == "wrong"]
    assert not (tmp_path / "data").exists()


def test_a_server_that_is_not_there_is_wrong_and_so_is_the_session(tmp_path: Path) -> None:
    found = findings(tmp_path, "127.0.0.1:1")

    assert the(found, "server 127.0.0.1:1") == Finding(
        "wrong", "server 127.0.0.1:1", "connection refused (named by --zookeeper)"
    )
    assert the(found, "session").state == "wrong"


def test_without_a_zookeeper_every_place_looked_at_is_listed(tmp_path: Path) -> None:
    found = the(findings(tmp_path, None), "zookeeper")

    assert found.state == "wrong"
    assert str(tmp_path / "none.toml") in found.found


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file in its place")

    assert "is no directory" in the(findings(tmp_path, None), "data").found


def test_a_containment_that_does_not_work_says_what_that_costs() -> None:
    found = list(on_containments({"sealed": "Operation not permitted", "swept": ""}))

    assert [each.state for each in found] == ["note", "ok"]
    assert "nobody takes over from this node" in found[0].found


def test_no_containment_at_all_is_wrong() -> None:
    assert list(on_containments({"swept": "Permission denied"}))[-1].state == "wrong"


def test_times_that_do_not_fit_are_wrong_with_the_most_that_would() -> None:
    found = on_numbers(Numbers.of(10.0, tick=0.0, stop_grace=9.0))

    assert found.state == "wrong"
    assert "stop_grace can be at most 4.4 s" in found.found
