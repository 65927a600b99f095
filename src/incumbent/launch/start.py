"""From a spec to a program about to be started: its environment, its folder, its executable.

Rule of this file: what is wrong with this node is found before START and said in one sentence;
nothing here starts anything. It reads the env_file and looks at the file system, no more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from incumbent.allowances import EVERYTHING, Allowances
from incumbent.errors import SpecError, SpecErrors
from incumbent.launch.env_file import parse_env_file
from incumbent.launch.identity import Identity, identity_of, user_of, user_problem
from incumbent.launch.named_file import NamedFile, read_named
from incumbent.spec import Spec
from incumbent.spec.limits import cgroup_files, rlimits
from incumbent.toml_file import did_you_mean

__all__ = ["Launch", "launch", "missing_requirements", "program_environment", "refusal"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What START carries. `executable` is where argv[0] was found; argv itself is as written.
    `identity`: None is the agent's own; `limits` by name of the rlimit, `cgroup_limits` by file.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    executable: str
    identity: Identity | None = None
    umask: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    cgroup_limits: Mapping[str, str] = field(default_factory=dict)


def launch(
    spec: Spec,
    seat: str,
    node: str,
    epoch: int,
    base: Mapping[str, str],
    allowed: Allowances = EVERYTHING,
    own: Path | None = None,
) -> Launch:
    """Everything that a start on this node needs. Raises `SpecErrors` if the node cannot do it,
    or does not allow it.

    `seat` is the seat's full name ("web/0"); `base` the agent's own environment; `own` its folder,
    in which it writes what the tree says.
    """
    missing = missing_requirements(spec)
    if nobody := user_problem(spec):
        raise SpecErrors([SpecError(spec.name, 0, "user", nobody)])
    if missing:
        text = f"missing on {node}: {', '.join(missing)}"
        raise SpecErrors([SpecError(spec.name, 0, "requires", text)])
    identity = identity_of(spec)
    file, variables = _env_file(spec)
    env = program_environment(spec, seat, node, epoch, base, variables)
    cwd = spec.cwd or "/"
    problem = _folder_problem(cwd)
    if problem:
        raise SpecErrors([SpecError(spec.name, 0, "cwd", problem)])
    executable, problem = _executable(spec.command[0], cwd, env.get("PATH", ""))
    if problem:
        raise SpecErrors([SpecError(spec.name, 0, "command", problem)])
    if refused := allowed.why_not_user(user_of(spec)):
        raise SpecErrors([SpecError(spec.name, 0, "user", refused)])
    judged = [*spec.env, *spec.config]
    if file is not None and not _is_the_nodes(file, own):
        judged += variables
    if refused := allowed.why_not_program(executable, judged):
        raise SpecErrors([SpecError(spec.name, 0, "command", refused)])
    argv = spec.command
    if allowed.commands is not None:  # what was judged is what is run, whatever is found later
        argv = (executable, *argv[1:])
    return Launch(
        argv=argv,
        env=env,
        cwd=cwd,
        executable=executable,
        identity=identity if identity and identity.uid != os.geteuid() else None,
        umask=spec.umask,
        limits=rlimits(spec.limits),
        cgroup_limits=cgroup_files(spec.limits),
    )


def program_environment(
    spec: Spec,
    seat: str,
    node: str,
    epoch: int,
    base: Mapping[str, str],
    env_file: Mapping[str, str],
) -> dict[str, str]:
    """PATH, HOME and LANG of `base`, then what the env_file says, then env, then INCUMBENT_…;
    nothing else. With a `user`, HOME, USER and LOGNAME are that one's.
    """
    env = {
        "PATH": base.get("PATH") or _PATH,
        "HOME": base.get("HOME") or "/",
        "LANG": base.get("LANG") or "C.UTF-8",
    }
    if identity := identity_of(spec):
        env |= {"HOME": identity.home, "USER": identity.name, "LOGNAME": identity.name}
    env |= env_file
    env |= spec.env
    env |= {
        "INCUMBENT_COMPONENT": spec.name,
        "INCUMBENT_SEAT": seat,
        "INCUMBENT_NODE": node,
        "INCUMBENT_EPOCH": str(epoch),
    }
    return env


def refusal(spec: Spec, base: Mapping[str, str], allowed: Allowances) -> str:
    """Why this node does not allow what the spec asks for, "" if it does.

    What is not found at all, or stands in an env_file, is for `launch` to judge.
    """
    if refused := allowed.why_not_user(user_of(spec)):
        return refused
    path = spec.env_file
    if path is not None and (problem := _env_file_problem(path, _mode(Path(path)))):
        return problem
    if allowed.commands is None:
        return ""
    places = spec.env.get("PATH") or base.get("PATH") or _PATH
    executable, unfit = _executable(spec.command[0], spec.cwd or "/", places)
    return "" if unfit else allowed.why_not_program(executable, [*spec.env, *spec.config])


def missing_requirements(spec: Spec) -> list[str]:
    """Which of `requires` do not exist on this node, or are not shown to us, in the order of the
    spec.
    """
    return [path for path in spec.requires if not _mode(Path(path))]


def _env_file(spec: Spec) -> tuple[NamedFile | None, Mapping[str, str]]:
    """The spec's env_file, if it names one, and what it says. Raises `SpecErrors`."""
    path = spec.env_file
    if path is None:
        return None, {}
    try:
        file = read_named(path)
        text = file.data.decode()
    except UnicodeDecodeError:
        why = "not UTF-8: expected a text file"
    except OSError as error:
        why = f"the env_file cannot be read: {error.strerror}"
    else:
        if problem := _env_file_problem(path, file.mode):
            raise SpecErrors([SpecError(path, 0, "env_file", problem)])
        return file, parse_env_file(text, path)
    raise SpecErrors([SpecError(path, 0, "", why)])


def _env_file_problem(path: str, mode: int) -> str:
    """Why an env_file is not for this program alone, "" if it is, or if it is not there at all."""
    if not mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        return ""
    return f"{path} may have secrets, and others can read or change it: chmod o=,g-w {path}"


def _is_the_nodes(file: NamedFile, own: Path | None) -> bool:
    """Whether a file is root's or the agent's, and not what the agent wrote for the tree: that may
    name any file that there is."""
    if own is not None and file.real.is_relative_to(own.resolve()):
        return False
    return file.owner in (0, os.geteuid())


def _mode(path: Path) -> int:
    """Of what is there; 0 where nothing is, or nothing that we may see."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _folder_problem(cwd: str) -> str | None:
    try:
        is_folder = stat.S_ISDIR(Path(cwd).stat().st_mode)
    except FileNotFoundError:
        return f"there is no folder {cwd} on this node"
    except OSError as error:
        return f"{cwd}: {(error.strerror or str(error)).lower()}"
    if not is_folder:
        return f"{cwd} is not a folder"
    return None if os.access(cwd, os.X_OK) else f"{cwd} cannot be entered"


def _executable(program: str, cwd: str, path: str) -> tuple[str, str | None]:
    """Where `program` is, looked up as exec does; and what is wrong with it."""
    if "/" in program:
        place = Path(cwd) / program
        return str(place), _unfit(place)
    denied = None
    for folder in path.split(":"):
        place = Path(cwd) / (folder or ".") / program
        problem = _unfit(place)
        if problem is None:
            return str(place), None
        if stat.S_ISREG(_mode(place)):  # a folder that is closed to us is passed over, as by exec
            denied = denied or problem
    if denied:
        return program, denied
    hint = did_you_mean(program, _programs(path))
    return program, f"no `{program}` in PATH ({path}){hint or '; install it, or name its path'}"


def _unfit(place: Path) -> str | None:
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return f"there is no {place}"
    except OSError as error:
        return f"{place}: {(error.strerror or str(error)).lower()}"
    if stat.S_ISDIR(mode):
        return f"{place} is a folder"
    return None if os.access(place, os.X_OK) else f"{place} is not executable (chmod +x it)"


def _programs(path: str) -> list[str]:
    """The names in PATH, for a hint at a mistyped one."""
    names: set[str] = set()
    for folder in path.split(":"):
        if folder and stat.S_ISDIR(_mode(Path(folder))) and os.access(folder, os.R_OK):
            names |= {entry.name for entry in os.scandir(folder)}
    return sorted(names)
