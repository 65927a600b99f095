"""A place where tests may make cgroups: our own cgroup, or a mount that we make.

Rule of this file: what is missing is said in one sentence; the mount ends with this process.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from incumbent.guardian.cgroup import find_own
from incumbent.guardian.containment import probe

__all__ = ["cgroups", "why_no_cgroups", "with_cgroups"]


@functools.cache
def _found() -> tuple[Path | None, str]:
    try:
        own = find_own()
    except OSError as error:
        why = error.strerror or str(error)
    else:
        why = probe(own)["contained"]
        if not why:
            return own, ""
    point = Path(tempfile.mkdtemp(prefix="incumbent-cgroup2-"))
    mounted = subprocess.run(
        ["mount", "-t", "cgroup2", "incumbent-tests", str(point)], capture_output=True, text=True
    )
    if mounted.returncode:
        point.rmdir()
        return None, f"{why}, and none can be mounted: {mounted.stderr.strip()}"
    atexit.register(_unmount, point, os.getpid())
    return point, probe(point)["contained"]


def _unmount(point: Path, pid: int) -> None:
    if os.getpid() == pid:  # not a fork of ours
        subprocess.run(["umount", "--lazy", str(point)])
        point.rmdir()


def cgroups() -> Path:
    """Where cgroups may be made; only where `why_no_cgroups()` is ""."""
    found = _found()[0]
    assert found is not None
    return found


def why_no_cgroups() -> str:
    return _found()[1]


with_cgroups = pytest.mark.skipif(bool(why_no_cgroups()), reason=why_no_cgroups() or "-")
"""For a test of *contained*; with CI=true a skip is a failure."""
