"""Asking a program by HTTP to quit, before it gets a signal: for those that know no signal, or
have more to put in order when they are asked kindly.

Rule of this file: loopback only, bounded in time, and whatever happens, the signal follows.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

__all__ = ["ask_to_quit"]

_MOST = 4096
"""Bytes of an answer that are looked at."""


async def ask_to_quit(url: str, timeout: float) -> str:
    """POST to `url`; "" where the program has heard it, else why not, in a few words.

    Heard is an answer with 2xx, and an end of the connection without one: it may be quitting.
    """
    parts = urlsplit(url)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    request = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: incumbent\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            try:
                writer.write(request.encode())
                line = await reader.readline()
            finally:
                writer.close()
    except TimeoutError:
        return f"no answer within {timeout:g} s"
    except ConnectionResetError:
        return ""
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    status = line[:_MOST].decode(errors="replace").split()
    code = status[1] if len(status) > 1 else ""
    with suppress(ValueError):
        return "" if not line or 200 <= int(code) < 300 else f"answered {code}"
    return "its answer is no HTTP"
