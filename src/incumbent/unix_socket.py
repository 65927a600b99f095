"""Where a socket in the file system is, in a name that the kernel takes.

Rule of this file: a name is used inside the block only; it means nothing outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["socket_name"]

_MOST = 100
"""Bytes; the kernel takes 107 (unix(7)), and a path may be much longer."""


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """To bind or connect to the socket at `path`, wherever that is. Raises `OSError` where its
    directory cannot be opened.
    """
    if len(os.fsencode(path)) <= _MOST:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
