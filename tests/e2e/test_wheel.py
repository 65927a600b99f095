"""The bare wheel, with nothing but itself installed, takes a lock."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.e2e.library_server import ServerProcess

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
import incumbent
assert not [name for name in sys.modules if name.startswith("incumbent.")], "import is not light"
with incumbent.connect(sys.argv[1], session_timeout=5) as zk:
    with zk.lock("/wheel", timeout=10) as hold:
        hold.ensure()
        print("held", hold.fencing_token > 0, 0 < hold.remaining() <= 5)
print(*sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[2:])))
"""
EXTRAS = ("msgspec", "typer", "rich", "uvloop", "kazoo", "psutil")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fresh environment with the wheel and nothing else, made without an index."""
    directory = tmp_path_factory.mktemp("wheel")
    _run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(directory), str(ROOT)
    )
    (wheel,) = directory.glob("incumbent-*.whl")
    venv.create(directory / "bare", with_pip=False)
    python = directory / "bare" / "bin" / "python"
    _run(
        *(sys.executable, "-m", "pip", "--python", str(python), "install"),
        *("--quiet", "--no-index", "--disable-pip-version-check", str(wheel)),
    )
    return str(python)


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_bare_wheel_serves_and_takes_a_lock(bare_python: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, python=bare_python) as server:
        out = _run(bare_python, "-c", PROGRAM, server.hosts, *EXTRAS, cwd=tmp_path)

    assert out.split() == ["held", "True", "True"]


def test_the_bare_wheel_says_that_it_is_typed_and_has_no_test_code(bare_python: str) -> None:
    program = (
        "import pathlib, incumbent\n"
        "root = pathlib.Path(incumbent.__file__).parent\n"
        "print((root / 'py.typed').exists(), (root.parent / 'tests').exists())"
    )

    assert _run(bare_python, "-c", program).split() == ["True", "False"]
