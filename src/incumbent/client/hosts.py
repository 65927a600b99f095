"""Where servers are said to be: `a:2181,b,[::1]:2182` as a list of hosts.

Rule of this file: a name stays a name. It is looked up at each attempt to connect, never here.
"""

from __future__ import annotations

from typing import NamedTuple

from incumbent.errors import SpecError
from incumbent.wire.paths import problem

__all__ = ["DEFAULT_PORT", "Host", "parse_hosts", "split_chroot"]

DEFAULT_PORT = 2181


class Host(NamedTuple):
    """One server: a name or an address, and a port. `alias`: what its address was looked up for."""

    name: str
    port: int
    alias: str = ""

    @property
    def called(self) -> str:
        """The name that its certificate must show."""
        return self.alias or self.name

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


def parse_hosts(text: str) -> list[Host]:
    """The hosts in `text`, in order, each once. Raises `SpecError` saying what was expected.

    A chroot (`host:port/path`) is refused here: see `split_chroot`.
    """
    if "/" in text:
        raise _wrong(text, "a chroot (/…) is not supported here; write the prefix into the paths")
    hosts: list[Host] = []
    for part in text.split(","):
        host = _host(text, part.strip())
        if host not in hosts:
            hosts.append(host)
    return hosts


def split_chroot(text: str) -> tuple[str, str]:
    """`a:2181,b:2181/app` as the list of hosts and the root, "" if none. Raises `SpecError`."""
    hosts, slash, path = text.partition("/")
    path = (slash + path).rstrip("/")
    if path and (why := problem(path)):
        raise _wrong(text, f"its chroot {path!r} is no path: {why}")
    return hosts, path


def _host(text: str, part: str) -> Host:
    if part.startswith("["):
        name, closed, rest = part[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _wrong(text, f"{part!r} is no [address]:port")
        port = rest[1:]
    elif part.count(":") > 1:  # an IPv6 address without a port
        name, port = part, ""
    else:
        name, _, port = part.partition(":")
        if part.endswith(":"):
            raise _wrong(text, f"{part!r} has no port after its colon")
    if not name:
        raise _wrong(text, "a host has no name; expected host:port, host:port, …")
    try:
        name.encode("ascii" if name.isascii() else "idna")
    except UnicodeError:
        raise _wrong(text, f"{name!r} cannot be a host's name") from None
    if not port:
        return Host(name, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _wrong(text, f"{port!r} is no port; expected a number from 1 to 65535")
    return Host(name, int(port))


def _wrong(text: str, problem: str) -> SpecError:
    return SpecError("hosts", 0, repr(text), problem)
