"""A file that a spec names is judged as it was opened, and holds up nobody."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from incumbent.launch import LARGEST, Identity, read_named

NOBODY = Identity(name="nobody", home="/", uid=65534, gid=65534, groups=())


@pytest.fixture
def folder() -> Iterator[Path]:
    """That anybody may pass: pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_is_read_with_whose_it_is(folder: Path) -> None:
    file, link = folder / "conf", folder / "link"
    file.write_bytes(b"x")
    file.chmod(0o640)
    link.symlink_to("conf")

    found = read_named(str(link))

    assert (found.data, found.owner, found.mode & 0o777) == (b"x", os.geteuid(), 0o640)
    assert found.real == file.resolve()


@pytest.mark.skipif(os.geteuid() == 65534, reason="the file is nobody's own")
def test_nothing_is_read_for_a_user_who_may_not_read_it(folder: Path) -> None:
    file = folder / "conf"
    file.write_text("x")
    file.chmod(0o640)

    with pytest.raises(OSError, match=f"not for nobody to read: it is closed by {file}"):
        read_named(str(file), NOBODY)
    file.chmod(0o644)
    assert read_named(str(file), NOBODY).data == b"x"
    folder.chmod(0o700)
    with pytest.raises(OSError, match=f"closed by {folder}$"):
        read_named(str(file), NOBODY)


@pytest.mark.parametrize("swapped", ["conf", "."])
def test_what_is_put_in_its_place_after_its_path_was_looked_up_is_not_read(
    folder: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who owns the folder, and would like to see what only we can read."""
    (folder / "own").mkdir()
    (folder / "secret").mkdir()
    for name in ("own", "secret"):
        (folder / name / "conf").write_text(name)
    resolve = os.path.realpath

    def swap(path: str, **options: Any) -> str:
        found = resolve(path, **options)
        at = folder / "own" / swapped
        at.rename(folder / "away")
        at.symlink_to(folder / "secret" / ("conf" if swapped == "conf" else ""))
        return found

    monkeypatch.setattr(os.path, "realpath", swap)

    with pytest.raises(OSError):
        read_named(str(folder / "own" / "conf"))


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "endless", "absent", "loop"])
def test_what_is_no_ordinary_file_of_a_size_is_refused_at_once(folder: Path, kind: str) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "endless").write_bytes(b"x" * (LARGEST + 1))
    path = "/dev/zero" if kind == "device" else str(folder / kind)

    with pytest.raises(OSError, match=r"name an ordinary one|larger than|no such file|too many"):
        read_named(path)


def test_the_root_is_no_file() -> None:
    with pytest.raises(OSError):
        read_named("/")
