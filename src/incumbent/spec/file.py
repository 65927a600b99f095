"""A component file: `incumbent.toml`, its `[component.NAME]` tables read into specs.

Rule of this file: all or nothing. Either every component is right and comes back in the order of
the file, or every problem of the file is reported at once, each with its line.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from incumbent.errors import SpecError, SpecErrors
from incumbent.settings import Settings, name_problem, resolve
from incumbent.spec.checks import CHECKS, REQUIRED
from incumbent.spec.procfile import is_procfile, parse_procfile
from incumbent.spec.spec import Spec
from incumbent.toml_file import KeyPath, TomlFile, did_you_mean, kind, parse_toml

__all__ = ["parse_specs", "read_specs", "settings_of"]

_TABLES = ("component", "incumbent")  # the second is read by `settings`
_PATHS = ("cwd", "env_file")
_ELSEWHERE = {
    **dict.fromkeys(("cmd", "exec", "run", "program", "entrypoint", "ExecStart"), "command"),
    **dict.fromkeys(("replicas", "instances", "count", "scale", "numprocs"), "copies"),
    **dict.fromkeys(("directory", "dir", "workdir", "working_dir", "WorkingDirectory"), "cwd"),
    **dict.fromkeys(("environment", "Environment", "variables"), "env"),
    **dict.fromkeys(("EnvironmentFile", "envfile"), "env_file"),
    **dict.fromkeys(("hosts", "machines", "node", "host"), "nodes"),
    **dict.fromkeys(
        ("stop_timeout", "stopwaitsecs", "TimeoutStopSec", "kill_timeout"), "stop_grace"
    ),
    **dict.fromkeys(("stopsignal", "KillSignal", "kill_signal"), "stop_signal"),
    **dict.fromkeys(("retries", "startretries", "StartLimitBurst", "max_restarts"), "max_failures"),
}
"""What other tools call a key of ours."""


def read_specs(path: Path, *, folder: Path | None = None) -> tuple[Spec, ...]:
    """The components that the file at `path` declares; see `parse_specs`.

    A file that cannot be read is a `SpecErrors` with one problem, too.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        text = "no such file; expected one with a [component.NAME] table for each program"
        raise SpecErrors([SpecError(str(path), 0, "", text)]) from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SpecErrors([SpecError(str(path), 0, "", f"cannot be read: {why}")]) from None
    if is_procfile(path):
        return parse_procfile(raw, str(path), folder=folder)
    return parse_specs(raw, str(path), folder=folder)


def settings_of(path: Path, flags: Mapping[str, object]) -> Settings:
    """The settings, the [incumbent] table of the file at `path` among them. Raises `SpecErrors`, and
    then with all that is wrong with its components too.

    A Procfile has no such table: what stands in an incumbent.toml beside it counts.
    """
    if is_procfile(path):
        return resolve(flags, folder=path.absolute().parent)
    try:
        return resolve(flags, file=path)
    except SpecErrors as error:
        said = {(problem.line, problem.problem) for problem in error.problems}
        more: Sequence[SpecError] = ()
        try:
            read_specs(path, folder=path.absolute().parent)
        except SpecErrors as also:
            more = [each for each in also.problems if (each.line, each.problem) not in said]
        raise SpecErrors([*error.problems, *more]) from None


def parse_specs(raw: bytes, name: str, *, folder: Path | None = None) -> tuple[Spec, ...]:
    """The components that a file's bytes declare, in the order of the file.

    `name` is the file as messages show it. With `folder` (`up`: the file's own) relative paths
    are taken from there, and it is the default of `cwd`; without (`apply`: the nodes have other
    folders) a relative path is a problem. Raises `SpecErrors`.
    """
    file = parse_toml(raw, name)
    reading = _Reading(file, folder)
    specs = reading.specs()
    if reading.problems:
        raise SpecErrors(reading.problems)
    return specs


class _Reading:
    """One file being read, and what is wrong with it so far."""

    def __init__(self, file: TomlFile, folder: Path | None) -> None:
        self.file = file
        self.folder = folder
        self.problems: list[SpecError] = []

    def wrong(self, path: KeyPath, text: str) -> None:
        self.problems.append(self.file.problem(path, text))

    def specs(self) -> tuple[Spec, ...]:
        for key, value in self.file.data.items():
            if key not in _TABLES:
                self.wrong((key,), _stray(key, value))
        tables = self.file.data.get("component", {})
        if not isinstance(tables, dict):
            self.wrong(("component",), f"expected a table [component.NAME], got {kind(tables)}")
            return ()
        if not tables and not self.problems:
            self.wrong((), "nothing to run: expected a [component.NAME] table for each program")
        found = [self._component(name, table) for name, table in tables.items()]
        return tuple(spec for spec in found if spec is not None)

    def _component(self, name: str, table: Any) -> Spec | None:
        here: KeyPath = ("component", name)
        before = len(self.problems)
        if problem := name_problem(name):
            self.wrong(here, f"{name!r} is no component's name: {problem}")
        if not isinstance(table, dict):
            text = "it stands in no component: " if name in CHECKS else ""
            self.wrong(here, f"{text}expected a table [component.NAME], got {kind(table)}")
            return None
        values = self._values(here, table)
        return None if len(self.problems) > before else Spec(name=name, **values)

    def _values(self, here: KeyPath, table: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in table.items():
            check = CHECKS.get(key)
            if check is None:
                meant = f"; did you mean `{_ELSEWHERE[key]}`?" if key in _ELSEWHERE else ""
                hint = meant or did_you_mean(key, CHECKS)
                hint = hint or f"; expected one of {', '.join(CHECKS)}"
                self.wrong((*here, key), f"unknown key{hint}")
                continue

            def wrong(text: str, *below: str | int, _key: str = key) -> None:
                self.wrong((*here, _key, *below), text)

            before = len(self.problems)
            values[key] = check(value, wrong)
            if key in _PATHS and len(self.problems) == before:
                values[key] = self._absolute((*here, key), values[key])
        for key, text in REQUIRED.items():
            if key not in table:
                self.wrong(here, text)
        if self.folder is not None:
            values.setdefault("cwd", str(self.folder.absolute()))
        return values

    def _absolute(self, path: KeyPath, value: str) -> str:
        if value.startswith("/"):
            return value
        if self.folder is None:
            self.wrong(
                path,
                f"expected an absolute path, got {value!r}: it is looked up on the node that "
                "starts the program",
            )
            return value
        return os.path.normpath(self.folder.absolute() / value)


def _stray(key: str, value: Any) -> str:
    """What is wrong with a key at the top of the file."""
    if isinstance(value, dict) and any(inner in CHECKS for inner in value):
        return f"unknown table; expected [component.{key}]"
    if key in CHECKS:
        return "it stands in no component; expected a table [component.NAME] above it"
    what = "table" if isinstance(value, dict) else "key"
    return f"unknown {what}{did_you_mean(key, _TABLES) or '; expected [component.NAME]'}"
