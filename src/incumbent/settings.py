"""One settings object: where ZooKeeper is, under which root, as which node.

Rule of this file: every value remembers where it came from, and a value that is missing is
reported with every place that was looked at. It imports fast (the guardian and the server use
it): no typer, rich or msgspec.

Order: flag, environment (INCUMBENT_…), `./incumbent.toml`, the runtime file of an `incumbent up`
(beside that file, else in the user's run folder), `$XDG_CONFIG_HOME/incumbent/agent.toml`,
`/etc/incumbent/agent.toml`, the default. In a file, settings stand in the table `[incumbent]`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from incumbent import runtime_file
from incumbent.allowances import Allowances
from incumbent.credentials import Credentials, read_auth
from incumbent.errors import SettingMissing, SpecError, SpecErrors
from incumbent.log_service import KEYS as LOG_KEYS
from incumbent.log_service import LogService
from incumbent.runtime_file import Runtime
from incumbent.toml_file import TomlFile, did_you_mean, kind, parse_toml
from incumbent.wire import paths

__all__ = ["KEYS", "SYSTEM", "Settings", "agent_data", "config_folder", "name_problem", "resolve"]

SYSTEM = Path("/etc/incumbent/agent.toml")
"""The node's own file."""
_DEFAULT_ROOT = "/incumbent"
_NUMBERS = ("session_timeout", "tick")
_CREDENTIALS = ("auth", "tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a command goes by. `origins` has, for each key, the place that its value came from."""

    zookeeper: str | None
    """HOST:PORT,…; use `hosts()` where it is needed."""
    root: str
    session_timeout: float | None
    """Seconds; None goes by the server: 10 on the embedded one, 30 on an ensemble."""
    tick: float | None
    """The servers' tickTime in seconds, 0 for a standalone one, None if unknown."""
    node: str
    data: Path
    """The agent's data directory, absolute."""
    auth: Path | None
    """The credentials file."""
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    insecure: bool
    """What is meant: see `Credentials`."""
    allowances: Allowances
    """Of this node, from its own file alone."""
    labels: Mapping[str, str]
    """The same."""
    logs: LogService | None
    """The same; None: they are shown to nobody. See `served_logs`."""
    logs_problem: SpecError | None
    runtime: Runtime | None
    """The `incumbent up` that was found running, if its ZooKeeper is the one used."""
    origins: Mapping[str, str]
    looked: tuple[tuple[str, str], ...]
    """(place, what was found there about ZooKeeper), in the order of precedence."""

    def hosts(self) -> str:
        """ZooKeeper's addresses. Raises `SettingMissing`, which names every place looked at."""
        if self.zookeeper is None:
            raise SettingMissing(
                "no ZooKeeper to connect to",
                self.looked,
                "start one here with `incumbent up`, or name one with --zookeeper HOST:PORT "
                "(`incumbent server --data DIR` is one)",
            )
        return self.zookeeper

    def credentials(self) -> Credentials:
        """Reads the credentials file. Raises `SpecErrors`."""
        return Credentials(
            auth=() if self.auth is None else read_auth(self.auth),
            tls_ca=_text(self.tls_ca),
            tls_cert=_text(self.tls_cert),
            tls_key=_text(self.tls_key),
            insecure=self.insecure,
        )

    def served_logs(self) -> LogService | None:
        """`logs`, for an agent to serve. Raises `SpecErrors` for what must not be served so."""
        if self.logs_problem is not None:
            raise SpecErrors([self.logs_problem])
        return self.logs

    @property
    def agent_folders(self) -> tuple[Path, ...]:
        """Data directories of agents on this machine that a command may ask, the nearest first."""
        beside = (Path(self.runtime.data),) if self.runtime is not None else ()
        return tuple(dict.fromkeys((*beside, self.data)))


def resolve(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    file: Path | None = None,
    uid: int | None = None,
    system: Path = SYSTEM,
    called: Mapping[str, str] = {},
) -> Settings:
    """Find every setting. `flags` has keys of `KEYS`; a flag that is None was not given. `called`: what
    a key's flag is, where not its own name.

    `folder` is where `incumbent.toml` is looked for (default: the working directory); `file`, a
    FILE named on the command line, is taken for it. Raises `SpecErrors` for a value or a file
    that is wrong; nothing is guessed around it.
    """
    environ = os.environ if environ is None else environ
    folder = Path.cwd() if folder is None else folder.absolute()
    local = folder / "incumbent.toml" if file is None else folder / file
    uid = os.geteuid() if uid is None else uid
    sources = [
        _flags(flags or {}, called),
        _environment(environ),
        _file(local),
        *_runtimes(local.parent, environ, uid),
        _file(_config_home(environ) / "incumbent" / "agent.toml"),
        _file(system, is_nodes=True),
    ]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in sources:
        own = source.values.get("zookeeper")
        if source.runtime is not None and values.get("zookeeper", own) != own:
            continue  # its root and its times are those of its own server
        for key, value in source.values.items():
            if key not in values:
                values[key], origins[key] = value, source.names.get(key, source.place)
    runtime = next(
        (s.runtime for s in sources if s.runtime and origins.get("zookeeper") == s.place), None
    )
    if runtime is not None:
        _as_the_runtime_has_it(runtime, values, origins)
    for key, default in _defaults(environ, uid).items():
        if key not in values:
            values[key], origins[key] = default, "default"
    looked = tuple((source.place, source.found()) for source in sources)
    own = sources[-1]
    return Settings(
        **values,
        allowances=own.allowances,
        labels=own.labels,
        logs=own.logs,
        logs_problem=_logs_problem(own, is_insecure=values["insecure"]),
        runtime=runtime,
        origins=origins,
        looked=looked,
    )


def agent_data(environ: Mapping[str, str], uid: int, *, up: Path | None = None) -> Path:
    """The data directory of an agent: by user, or under an `up` whose FILE stands in `up`."""
    if up is not None:
        return up.absolute() / ".incumbent" / "agent"
    if uid == 0:
        return Path("/var/lib/incumbent")
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else _home(environ) / ".local" / "state") / "incumbent"


def config_folder(environ: Mapping[str, str], uid: int) -> Path:
    """Where this user's settings are: `/etc/incumbent` for root."""
    return SYSTEM.parent if uid == 0 else _config_home(environ) / "incumbent"


def name_problem(name: str) -> str | None:
    """Why `name` cannot name a component or a node, or None. It becomes part of a znode's path."""
    if not name:
        return "expected a name, got nothing"
    if name in (".", ".."):
        return "expected another name than . or .."
    if len(name) > 64:
        return f"expected at most 64 characters, got {len(name)}"
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        return "expected only letters, digits, `-`, `_` and `.`"
    if name[0] == "-":
        return "expected it not to begin with `-`, which would read as a flag"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One place looked at: the values found there, or why there are none (`note`)."""

    place: str
    values: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)
    """What a value is called there, where each has a name of its own."""
    note: str = ""
    runtime: Runtime | None = None
    allowances: Allowances = field(default_factory=Allowances)
    labels: Mapping[str, str] = field(default_factory=dict)
    logs: LogService | None = None
    file: TomlFile | None = None

    def found(self) -> str:
        return self.note or str(self.values.get("zookeeper") or "no `zookeeper` in [incumbent]")


def _flags(flags: Mapping[str, object], called: Mapping[str, str]) -> _Source:
    given = {key: value for key, value in flags.items() if value is not None}
    names = {key: f"--{key.replace('_', '-')}" for key in KEYS} | dict(called)
    values = {key: _cleaned(key, value, names[key], Path.cwd()) for key, value in given.items()}
    note = "" if "zookeeper" in values else "not given"
    return _Source(place="--zookeeper", values=values, names=names, note=note)


def _environment(environ: Mapping[str, str]) -> _Source:
    names = {key: f"INCUMBENT_{key.upper()}" for key in KEYS}
    values: dict[str, Any] = {}
    for key, name in names.items():
        if text := environ.get(name):
            value = _read(key, text)
            values[key] = _cleaned(key, value, name, Path.cwd())
    note = "" if "zookeeper" in values else "not set"
    return _Source(place="INCUMBENT_ZOOKEEPER", values=values, names=names, note=note)


def _file(path: Path, *, is_nodes: bool = False) -> _Source:
    """The table [incumbent] of a file. A file that we may not read is passed over, and said so.
    `is_nodes`: it is the node's own, which says what may run on it.
    """
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return _Source(place=str(path), values={}, note="no such file")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return _Source(place=str(path), values={}, note=f"cannot be read: {why}")
    file = parse_toml(raw, str(path))
    table = file.data.get("incumbent", {})
    if not isinstance(table, dict):
        raise SpecErrors([file.problem(("incumbent",), f"expected a table, got {kind(table)}")])
    values: dict[str, Any] = {}
    problems: list[SpecError] = []
    own: dict[str, Any] = {}
    for key, value in table.items():
        if key in _OWN:
            if not is_nodes:
                text = f"only {SYSTEM} may say {_OWN_WHAT[key]}"
                problems.append(file.problem(("incumbent", key), text))
                continue
            try:
                own[key] = _OWN[key](value)
            except ValueError as error:
                problems.append(file.problem(("incumbent", key), str(error)))
            continue
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f"; expected one of {', '.join(KEYS)}"
            problems.append(file.problem(("incumbent", key), f"unknown key{hint}"))
            continue
        try:
            values[key] = KEYS[key](value, path.parent)
        except ValueError as error:
            problems.append(file.problem(("incumbent", key), str(error)))
    logs = None
    if "logs" in file.data:
        if is_nodes:
            logs = _logs(file, path.parent, problems)
        else:
            text = f"only {SYSTEM} may say to whom a node shows its logs"
            problems.append(file.problem(("logs",), text))
    if problems:
        raise SpecErrors(problems)
    return _Source(
        place=str(path),
        values=values,
        allowances=Allowances(
            users=own.get("allow_users"), commands=own.get("allow_commands"), source=str(path)
        ),
        labels=own.get("labels", {}),
        logs=logs,
        file=file,
    )


def _logs(file: TomlFile, base: Path, problems: list[SpecError]) -> LogService | None:
    """The table [logs] of a node's own file."""
    table = file.data["logs"]
    if not isinstance(table, dict):
        problems.append(file.problem(("logs",), f"expected a table, got {kind(table)}"))
        return None
    values: dict[str, Any] = {}
    for key, value in table.items():
        try:
            if key not in LOG_KEYS:
                hint = did_you_mean(key, LOG_KEYS) or f"; expected one of {', '.join(LOG_KEYS)}"
                raise ValueError(f"unknown key{hint}")
            if key == "readers":
                values[key] = _readers(value)
            elif key.startswith("tls_"):
                values[key] = str(_path(value, base))
            elif isinstance(value, str):
                values[key] = value
            else:
                raise ValueError(f'expected "HOST:PORT", like "10.0.0.1:7281"; got {kind(value)}')
        except ValueError as error:
            problems.append(file.problem(("logs", key), str(error)))
    if "listen" not in table:
        problems.append(file.problem(("logs",), 'expected `listen = "HOST:PORT"`: where to'))
    return LogService(**values) if "listen" in values else None


def _logs_problem(own: _Source, *, is_insecure: bool) -> SpecError | None:
    problem = own.logs.problem(is_insecure=is_insecure) if own.logs is not None else None
    if problem is None or own.file is None:
        return None
    key, text = problem
    return own.file.problem(("logs", key), text)


def _runtimes(folder: Path, environ: Mapping[str, str], uid: int) -> list[_Source]:
    """The `up` beside `./incumbent.toml`, then the only one of this user that runs. In the folder of
    one that does not run nobody means another's.
    """
    path = runtime_file.beside(folder)
    found = runtime_file.read_runtime(path)
    if found is None:
        nearest = _Source(place=str(path), values={}, note="no `incumbent up` runs here")
    elif not runtime_file.is_alive(found):
        note = f"left by an `incumbent up` that has ended (pid {found.pid})"
        nearest = _Source(place=str(path), values={}, note=note)
    else:
        nearest = _running(str(path), found)
    if nearest.runtime is None and path.parent.is_dir():
        note = f"{nearest.note}; `incumbent up` starts this folder's, and those of others are not meant"
        return [_Source(place=str(path), values={}, note=note)]
    return [nearest, *(_run_folder(run) for run in runtime_file.run_folders(environ, uid))]


def _run_folder(run: Path) -> _Source:
    all_found = [runtime_file.read_runtime(path) for path in sorted(run.glob("*.json"))]
    alive = [found for found in all_found if found is not None and runtime_file.is_alive(found)]
    if len(alive) == 1:
        return _running(str(run), alive[0])
    note = "no running `incumbent up`"
    if alive:
        files = ", ".join(found.file for found in alive)
        note = f"{len(alive)} running `incumbent up`s ({files}): go to the folder of one"
    return _Source(place=str(run), values={}, note=note)


def _running(place: str, found: Runtime) -> _Source:
    """Where its server is; its node and data are its own agent's and nobody else's."""
    values = {"zookeeper": found.zookeeper, "root": found.root}
    for key in _NUMBERS:
        if getattr(found, key) is not None:
            values[key] = getattr(found, key)
    return _Source(place=place, values=values, runtime=found)


def _as_the_runtime_has_it(
    runtime: Runtime, values: dict[str, Any], origins: dict[str, str]
) -> None:
    """What is shown to an `up`'s own server is the `up`'s own credential, and nobody else's."""
    for key in _CREDENTIALS:
        if key in values and not origins[key].startswith("--"):
            del values[key], origins[key]
    if runtime.auth is not None and "auth" not in values:
        values["auth"], origins["auth"] = Path(runtime.auth), origins["zookeeper"]


def _defaults(environ: Mapping[str, str], uid: int) -> dict[str, Any]:
    return {
        "zookeeper": None,
        "root": _DEFAULT_ROOT,
        "session_timeout": None,
        "tick": None,
        "node": _host_name(),
        "data": agent_data(environ, uid),
        **dict.fromkeys(_CREDENTIALS),
        "insecure": False,
    }


def _host_name() -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", os.uname().nodename)[:64].lstrip("-.")
    return name or "localhost"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "/")


def _config_home(environ: Mapping[str, str]) -> Path:
    xdg = environ.get("XDG_CONFIG_HOME")
    return Path(xdg) if xdg else _home(environ) / ".config"


def _cleaned(key: str, value: object, place: str, base: Path) -> Any:
    try:
        return KEYS[key](value, base)
    except ValueError as error:
        raise SpecErrors([SpecError(place, 0, "", str(error))]) from None


def _read(key: str, text: str) -> float | bool | str:
    """A variable's text as a file would have it; what is none of its kind stays a text."""
    if key == "insecure":
        return {"true": True, "false": False}.get(text, text)
    try:
        return float(text) if key in _NUMBERS else text
    except ValueError:
        return text


def _zookeeper(value: object, _base: Path) -> str:
    expected = 'expected "HOST:PORT" or several with commas between'
    if not isinstance(value, str):
        raise ValueError(f"{expected}; got {kind(value)}")
    if "/" in value:
        raise ValueError(f"{expected}; got {value!r} (what follows a `/` is the setting `root`)")
    hosts = [host.strip() for host in value.split(",")]
    for host in hosts:
        match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]+)(?::(\d{1,5}))?", host)
        if match is None or not 0 < int(match[1] or 2181) < 65536:
            raise ValueError(f"{expected}; got {value!r}")
        try:
            host.encode("ascii" if host.isascii() else "idna")
        except UnicodeError:
            raise ValueError(f"{expected}; {host!r} cannot be a host's name") from None
    return ",".join(hosts)


def _root(value: object, _base: Path) -> str:
    if not isinstance(value, str):
        raise ValueError(f'expected a znode\'s path, like "/incumbent"; got {kind(value)}')
    problem = paths.problem(value)
    if problem is None and value == "/":
        problem = "the supervisor needs a znode of its own"
    if problem is not None:
        raise ValueError(f'expected a znode\'s path, like "/incumbent"; got {value!r}: {problem}')
    return value


def _seconds(value: object, _base: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        got = repr(value) if isinstance(value, str) else kind(value)
        raise ValueError(f"expected a number of seconds, like 10; got {got}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"expected a number of seconds from 0, got {value}")
    return float(value)


def _timeout(value: object, base: Path) -> float:
    seconds = _seconds(value, base)
    if not 0.1 <= seconds <= 86400:
        raise ValueError(f"expected from 0.1 to 86400 seconds, got {seconds:g}")
    return seconds


def _node(value: object, _base: Path) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a node's name as a string, got {kind(value)}")
    if problem := name_problem(value):
        raise ValueError(f"{value!r} is no node's name: {problem}")
    return value


def _path(value: object, base: Path) -> Path:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError(f"expected a path, got {kind(value)}")
    if str(value).startswith("~"):
        raise ValueError(f"`~` is not expanded: expected a path from `/`, got {str(value)!r}")
    return Path(os.path.normpath(base.absolute() / value))


def _truth(value: object, _base: Path) -> bool:
    if not isinstance(value, bool):
        got = repr(value) if isinstance(value, str) else kind(value)
        raise ValueError(f"expected true or false, got {got}")
    return value


def _users(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f'expected a list of users, like ["web"]; got {kind(value)}')
    return tuple(value)


def _programs(value: object) -> tuple[str, ...]:
    expected = 'expected a list of absolute paths, like ["/usr/bin/redis-server", "/srv/app/*"]'
    if not isinstance(value, list):
        raise ValueError(f"{expected}; got {kind(value)}")
    for each in value:
        if not isinstance(each, str) or not each.startswith("/") or ".." in each.split("/"):
            raise ValueError(f"{expected}; got {each!r}")
    return tuple(value)


def _readers(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(r, str) for r in value):
        raise ValueError(f'expected a list of readers, like ["operators"]; got {kind(value)}')
    return tuple(value)


def _labels(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f'expected a table, like {{ rack = "a" }}; got {kind(value)}')
    for key, text in value.items():
        if problem := name_problem(key):
            raise ValueError(f"{key!r} is no label's name: {problem}")
        if not isinstance(text, str):
            raise ValueError(f'expected a string for {key}, like "a"; got {kind(text)}')
    return value


_OWN: Mapping[str, Callable[[object], Any]] = {
    "allow_users": _users,
    "allow_commands": _programs,
    "labels": _labels,
}
"""What only the node's own file may say."""
_OWN_WHAT = {**dict.fromkeys(_OWN, "what a node allows"), "labels": "which labels a node has"}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


KEYS: Mapping[str, Callable[[object, Path], Any]] = {
    "zookeeper": _zookeeper,
    "root": _root,
    "session_timeout": _timeout,
    "tick": _seconds,
    "node": _node,
    "data": _path,
    "auth": _path,
    "tls_ca": _path,
    "tls_cert": _path,
    "tls_key": _path,
    "insecure": _truth,
}
