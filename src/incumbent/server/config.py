"""Settings of the server's process: flags, environment and a `zoo.cfg`, in this order of weight.

Rule of this file: each setting is one row of `_OPTIONS`, and means the same wherever it is said.
Whatever is wrong is one sentence that names where it was said and the next step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from incumbent.server.words import DEFAULT_WORDS, WORDS
from incumbent.wire import MAX_FRAME

__all__ = [
    "Address",
    "BadSettings",
    "Parser",
    "Settings",
    "add_data",
    "read_settings",
    "read_size",
    "read_words",
]


class BadSettings(Exception):
    """A sentence for the operator."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server process is told. Times are seconds.

    data                     its directory; data_log, if given, is where the database is kept
    listen                   for clients in clear; None if only TLS is spoken
    tls_listen               for clients with TLS
    min_timeout              of sessions; None for 2 ticks
    max_timeout              of sessions; None for 20 ticks
    connections_per_address  0 for any number
    frame_bytes              largest request
    words                    four-letter words that are answered
    client_auth              `need`, `want` or `none`: certificates of clients
    warnings                 lines about what was read and has no effect
    """

    data: Path
    data_log: Path | None = None
    listen: Address | None = None
    tls_listen: Address | None = None
    tick: float = 2.0
    min_timeout: float | None = None
    max_timeout: float | None = None
    connections_per_address: int = 60
    frame_bytes: int = MAX_FRAME
    words: frozenset[str] = DEFAULT_WORDS
    admin: Address | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_password: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    client_auth: str = "none"
    sasl_users: Path | None = None
    super_digest: str | None = field(default=None, repr=False)
    ttl_znodes: bool = False
    log_format: str = "text"
    listen_fd: int | None = None
    ready_fd: int | None = None
    parent_death: int | None = None
    until_fd: int | None = None
    warnings: tuple[str, ...] = ()


def read_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Raises `BadSettings`, and `SystemExit` as argparse does."""
    said = vars(_parser().parse_args(argv))
    config = said.pop("config", None) or environ.get("INCUMBENT_SERVER_CONFIG")
    warnings: list[str] = []
    values: dict[str, Any] = {}
    if config:
        from incumbent.server.zoo_cfg import read_zoo_cfg

        values, warnings = read_zoo_cfg(Path(config))
    for option in _OPTIONS:
        variable = "INCUMBENT_SERVER_" + option.name.upper().replace("-", "_")
        if environ.get(variable, "") != "":
            values[option.key] = option.read(variable, environ[variable])
    for option in _OPTIONS:
        text = said.get(option.key)
        if text is not None:
            values[option.key] = option.read(f"--{option.name}", text)
    for key in ("listen_fd", "ready_fd", "parent_death", "until_fd"):
        values[key] = said[key]
    return _checked(values, tuple(warnings))


def add_data(parser: argparse.ArgumentParser) -> None:
    """The flag --data, for the other commands about a data directory."""
    parser.add_argument("--data", metavar="DIR", type=Path, required=True, help=_OPTIONS[0].help)


def _checked(values: dict[str, Any], warnings: tuple[str, ...]) -> Settings:
    """What depends on more than one setting."""
    if "data" not in values:
        raise BadSettings("no data directory is named; name one with --data DIR")
    has_tls = "tls_cert" in values
    if "tls_listen" in values and not has_tls:
        raise BadSettings(
            f"TLS on {values['tls_listen']} needs a certificate; name it with --tls-cert FILE"
        )
    if not has_tls and ("tls_key" in values or "tls_ca" in values):
        raise BadSettings("there is no TLS without a certificate; name it with --tls-cert FILE")
    if has_tls:
        values.setdefault("tls_key", values["tls_cert"])
        values.setdefault("client_auth", "need" if "tls_ca" in values else "none")
        if "tls_listen" not in values:  # no second port: the one that there is speaks TLS
            values["tls_listen"] = values.pop("listen", _LISTEN)
    else:
        values.setdefault("listen", _LISTEN)
    tick = values.get("tick", 2.0)
    shortest = values.get("min_timeout") or 2 * tick
    longest = values.get("max_timeout") or 20 * tick
    if shortest > longest:
        raise BadSettings(
            f"sessions cannot last at least {shortest:g} and at most {longest:g} seconds; "
            "see --min-session-timeout, --max-session-timeout and --tick"
        )
    return Settings(**values, warnings=warnings)


# -- one value


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError("is not HOST:PORT, such as 127.0.0.1:2181")
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))


def _tick(text: str) -> float:
    return _seconds(text, 60)


def _timeout(text: str) -> float:
    return _seconds(text, 86_400)


def _seconds(text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= most:
        raise ValueError(f"is not a number of seconds from 0.01 to {most:g}")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError("is not a number; 0 is for any number")
    return int(text)


def read_size(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= _MOST_BYTES:
        raise ValueError(f"is not a number of bytes from 1024 to {_MOST_BYTES}")
    return int(text)


def read_words(text: str) -> frozenset[str]:
    known = frozenset(word.decode() for word in WORDS)
    if text.strip() == "*":
        return known
    words = frozenset(filter(None, (word.strip() for word in text.split(","))))
    if words - known:
        raise ValueError(
            f"names {', '.join(sorted(words - known))}; "
            f"there are * (for all) and {', '.join(sorted(known))}"
        )
    return words


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text

    return read


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


class _Option(NamedTuple):
    """A setting: flag, `INCUMBENT_SERVER_` variable, and how its text is read."""

    name: str
    metavar: str
    of: Callable[[str], Any]
    help: str
    field: str = ""

    @property
    def key(self) -> str:
        return self.field or self.name.replace("-", "_")

    def read(self, where: str, text: str) -> Any:
        try:
            return self.of(text)
        except ValueError as error:
            raise BadSettings(f"{where}: {text!r} {error}") from None


_MOST_BYTES = 64 * 1024 * 1024

_LISTEN = Address("127.0.0.1", 2181)

_OPTIONS = (
    _Option("data", "DIR", Path, "where it keeps its data"),
    _Option("data-log", "DIR", Path, "where the database is kept, if on a disk of its own"),
    _Option(
        "listen",
        "HOST:PORT",
        _address,
        "where clients reach it (default 127.0.0.1:2181; port 0 takes a free one)",
    ),
    _Option("tick", "SECONDS", _tick, "sessions last 2 to 20 ticks (default 2)"),
    _Option(
        "min-session-timeout",
        "SECONDS",
        _timeout,
        "shortest session (default 2 ticks)",
        "min_timeout",
    ),
    _Option(
        "max-session-timeout",
        "SECONDS",
        _timeout,
        "longest session (default 20 ticks)",
        "max_timeout",
    ),
    _Option(
        "max-connections",
        "N",
        _count,
        "from one address (default 60; 0 for any number)",
        "connections_per_address",
    ),
    _Option(
        "max-request",
        "BYTES",
        read_size,
        f"largest request (default {MAX_FRAME})",
        "frame_bytes",
    ),
    _Option("words", "LIST", read_words, "four-letter words answered: * or such as srvr,mntr"),
    _Option(
        "admin",
        "HOST:PORT",
        _address,
        "HTTP with /commands/… and /metrics, open to whoever reaches it (default: off)",
    ),
    _Option(
        "tls-listen",
        "HOST:PORT",
        _address,
        "where clients reach it with TLS (without this, --listen speaks TLS if --tls-cert is given)",
    ),
    _Option("tls-cert", "FILE", Path, "the server's certificate, PEM"),
    _Option("tls-key", "FILE", Path, "its key, PEM (default: in the certificate's file)"),
    _Option("tls-ca", "FILE", Path, "who signs clients' certificates, PEM; clients must show one"),
    _Option(
        "tls-client-auth",
        "need|want|none",
        _one_of("need", "want", "none"),
        "must clients show a certificate? (default: need with --tls-ca, else none)",
        "client_auth",
    ),
    _Option(
        "sasl-users",
        "FILE",
        Path,
        "SASL DIGEST-MD5: lines of NAME:PASSWORD, readable to the owner only",
    ),
    _Option("super-digest", "super:BASE64", str, "who shows this digest may do all"),
    _Option("ttl-znodes", "true|false", _truth, "znodes with a time to live (default false)"),
    _Option("log-format", "text|json", _one_of("text", "json"), "of the lines on stderr"),
)


class Parser(argparse.ArgumentParser):
    """One line says what is wrong, and where to read on."""

    def error(self, message: str) -> NoReturn:
        print(f"incumbent: {message}; `{self.prog} --help` shows what there is", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="incumbent server",
        description="A ZooKeeper server for one machine. Also: incumbent server backup FILE, "
        "incumbent server restore FILE.",
        epilog="Each setting is also a variable: INCUMBENT_SERVER_TICK for --tick.",
    )
    parser.add_argument("--config", metavar="FILE", help="settings in ZooKeeper's zoo.cfg format")
    for option in _OPTIONS:
        parser.add_argument(
            f"--{option.name}", dest=option.key, metavar=option.metavar, help=option.help
        )
    parser.add_argument(
        "--listen-fd",
        metavar="N",
        type=int,
        help="serve on this listening socket, in place of --listen",
    )
    parser.add_argument(
        "--ready-fd",
        metavar="N",
        type=int,
        help="write the line about listening to this file descriptor as well, and close it",
    )
    parser.add_argument(
        "--parent-death",
        metavar="PID",
        type=int,
        help="stop when the process that started this one, PID, ends",
    )
    parser.add_argument(
        "--until-fd",
        metavar="N",
        type=int,
        help="stop when every process that has this pipe's other end has ended",
    )
    return parser
