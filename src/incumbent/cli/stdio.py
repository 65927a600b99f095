"""What goes in at stdin and out at stdout, where either may be a pipe, a file, full or closed.

Rule of this file: bytes go through as they are, and a failure to write them is one line on stderr and
an exit code. Nobody reading any more is no failure: they have what they wanted.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from incumbent.cli.exits import DONE, NO, No, say

__all__ = ["lines_of_stdin", "open_closed", "read_data", "read_stdin", "shown", "write_out"]

_OF_STDOUT = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)
"""How stdout fails."""
_CHUNK = 65_536


def open_closed() -> None:
    """Give what was closed at our start a descriptor that fails as a closed one does.

    Else the first socket that is opened gets its number, and what is said on stderr goes to it.
    """
    for fd, the_wrong_way in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            with suppress(OSError):  # a machine without /dev/null has other worries
                os.set_inheritable(os.open(os.devnull, the_wrong_way), True)


def shown(work: Callable[[], int]) -> int:
    """The exit code of `work`, once what it printed has gone through stdout; 1 if it could not."""
    if sys.stdout is None:  # it was closed at our start
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may have any bytes
    try:
        code = work()
        if sys.stdout is not None:  # `work` may have given it up
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # else what is left is written once more, at the end
        return DONE
    except OSError as error:
        if error.errno not in _OF_STDOUT or error.filename is not None:
            raise
        sys.stdout = None
        say(f"stdout takes nothing more: {_why(error)}")
        return NO
    return code


def write_out(data: bytes) -> None:
    """To stdout, and through, before this returns. Raises OSError."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def read_data(given: str) -> bytes:
    """What is to be a znode's data: the argument, byte for byte, or what stdin has where it is `-`.
    Before anything is awaited, for Ctrl-C is not heard by it otherwise. Raises `No`."""
    if given != "-":
        return os.fsencode(given)
    chunks: list[bytes] = []
    while chunk := _chunk():
        chunks.append(chunk)
    return b"".join(chunks)


async def read_stdin() -> bytes:
    """All of it, while everything else goes on. Raises `No`."""
    return b"".join([chunk async for chunk in _chunks()])


async def lines_of_stdin() -> AsyncIterator[bytes]:
    """Each as it comes, without its end; the last one need not have any. Raises `No`."""
    rest = b""
    async for chunk in _chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


async def _chunks() -> AsyncIterator[bytes]:
    """A pipe or a terminal is waited for by the loop, so that a cancellation is heard at once; a
    file is there."""
    import asyncio  # a guardian needs the rest of this module, and no loop

    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(0, readable.set)
    except OSError:  # a file, or closed: no poll takes it, and no read of it waits
        while chunk := _chunk():
            yield chunk
            await asyncio.sleep(0)
        return
    try:
        while True:
            await readable.wait()
            readable.clear()
            chunk = _chunk()
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(0)


def _chunk() -> bytes:
    try:
        return os.read(0, _CHUNK)
    except OSError as error:
        raise No(f"stdin cannot be read: {_why(error)}") from None


def _why(error: OSError) -> str:
    if error.errno == errno.EBADF:
        return "it is closed"
    return (error.strerror or str(error)).lower()
