"""A small disk, to be filled: a file system of its own, so that nothing else is full.

Rule of this file: it is gone after its test; where none can be mounted, that is said.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "small_disk"]


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of `size` at `folder`. Skips the test where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; the file that takes them."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for chunk in (65536, 4096, 1):
            try:
                while file.write(b"x" * chunk):
                    pass
            except OSError:
                continue
    return filler
