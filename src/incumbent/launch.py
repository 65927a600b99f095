"""From a spec to a program about to be started: its environment, its folder, its executable.

Rule of this file: what is wrong with this node is found before START and said in one sentence;
nothing here starts anything. It reads the env_file and looks at the file system, no more.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from incumbent.allowances import EVERYTHING, Allowances
from incumbent.errors import SpecError, SpecErrors
from incumbent.spec import Spec
from incumbent.spec.limits import cgroup_files, rlimits
from incumbent.toml_file import did_you_mean

__all__ = [
    "BACKGROUND_WITHIN",
    "env_file_problem",
    "Identity",
    "Launch",
    "foreground_switch",
    "identity_of",
    "launch",
    "missing_requirements",
    "parse_env_file",
    "program_environment",
    "refusal",
    "unreadable_by",
    "user_of",
    "user_problem",
    "went_background",
]

BACKGROUND_WITHIN = 5.0
"""Seconds: a main process that exits with 0 sooner, its children alive, has daemonized."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VARIABLE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user of this machine, as its program will have it."""

    name: str
    home: str
    uid: int
    gid: int
    groups: tuple[int, ...]


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
    env = program_environment(spec, seat, node, epoch, base)
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
    if spec.env_file is not None and not _is_the_nodes(spec.env_file, own):
        judged += _read_env_file(Path(spec.env_file))
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
    spec: Spec, seat: str, node: str, epoch: int, base: Mapping[str, str]
) -> dict[str, str]:
    """PATH, HOME and LANG of `base`, then env_file, then env, then INCUMBENT_…; nothing else.
    With a `user`, HOME, USER and LOGNAME are that one's.

    Reads the env_file. Raises `SpecErrors`.
    """
    env = {
        "PATH": base.get("PATH") or _PATH,
        "HOME": base.get("HOME") or "/",
        "LANG": base.get("LANG") or "C.UTF-8",
    }
    if identity := identity_of(spec):
        env |= {"HOME": identity.home, "USER": identity.name, "LOGNAME": identity.name}
    if spec.env_file is not None:
        env |= _read_env_file(Path(spec.env_file))
    env |= spec.env
    env |= {
        "INCUMBENT_COMPONENT": spec.name,
        "INCUMBENT_SEAT": seat,
        "INCUMBENT_NODE": node,
        "INCUMBENT_EPOCH": str(epoch),
    }
    return env


def identity_of(spec: Spec) -> Identity | None:
    """The spec's user on this machine; None if it names none, or one that is not here."""
    try:
        entry = pwd.getpwnam(spec.user) if spec.user is not None else None
    except KeyError:
        return None
    if entry is None:
        return None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    name, uid, gid = entry.pw_name, entry.pw_uid, entry.pw_gid
    return Identity(name=name, home=entry.pw_dir, uid=uid, gid=gid, groups=groups)


def user_problem(spec: Spec) -> str:
    """Why nothing can run as the spec's user on this machine, "" if it can."""
    if spec.user is None:
        return ""
    try:
        uid = pwd.getpwnam(spec.user).pw_uid
    except KeyError:
        return f"there is no user {spec.user} on this node"
    if uid != os.geteuid() != 0:
        return f"only an agent that is root can run it as {spec.user}; this one is not"
    return ""


def user_of(spec: Spec) -> str:
    """Who its program is on this node; the number of a user without a name."""
    if spec.user is not None:
        return spec.user
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def refusal(spec: Spec, base: Mapping[str, str], allowed: Allowances) -> str:
    """Why this node does not allow what the spec asks for, "" if it does.

    What is not found at all, or stands in an env_file, is for `launch` to judge.
    """
    if refused := allowed.why_not_user(user_of(spec)):
        return refused
    if spec.env_file is not None and (problem := env_file_problem(spec.env_file)):
        return problem
    if allowed.commands is None:
        return ""
    path = spec.env.get("PATH") or base.get("PATH") or _PATH
    executable, unfit = _executable(spec.command[0], spec.cwd or "/", path)
    return "" if unfit else allowed.why_not_program(executable, [*spec.env, *spec.config])


def missing_requirements(spec: Spec) -> list[str]:
    """Which of `requires` do not exist on this node, or are not shown to us, in the order of the
    spec.
    """
    return [path for path in spec.requires if not _mode(Path(path))]


def parse_env_file(text: str, name: str) -> dict[str, str]:
    """The variables of an env_file. Raises `SpecErrors` with every wrong line of it.

    One KEY=VALUE on a line, `export` before it allowed; empty lines and lines from `#` on are
    passed over. A bare value goes to the end of the line, a `#` in it included. 'single quotes'
    are literal; "double quotes" know \\n, \\t, \\r, \\", \\\\, \\$ and \\`. Nothing is expanded.
    A later line wins. A value is never part of a message: it may be a secret.
    """
    variables: dict[str, str] = {}
    problems: list[SpecError] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _VARIABLE.fullmatch(line)
        if match is None:
            what = "expected KEY=VALUE, with a KEY of letters, digits and `_`"
            problems.append(SpecError(name, number, "", what))
            continue
        try:
            variables[match[1]] = _unquoted(match[2])
        except ValueError as error:
            problems.append(SpecError(name, number, match[1], str(error)))
    if problems:
        raise SpecErrors(problems)
    return variables


def foreground_switch(command: Sequence[str]) -> str:
    """How the program of `command` is kept in the foreground, ready to follow "use "."""
    for word in _words(command):
        program = word.rsplit("/", 1)[-1]
        for pattern, switch in _FOREGROUND:
            if re.fullmatch(pattern, program):
                return switch
    return "its foreground switch"


def went_background(
    command: Sequence[str], code: int | None, uptime: float, left: int
) -> str | None:
    """Why an ended main process counts as a failed start, or None if it does not.

    `uptime` in seconds; `left`: descendants alive when it ended.
    """
    if code != 0 or left == 0 or uptime >= BACKGROUND_WITHIN:
        return None
    processes = "1 process" if left == 1 else f"{left} processes"
    return (
        f"put itself in the background: {command[0]} ended with 0 after {uptime:.1f} s and left "
        f"{processes}; use {foreground_switch(command)}"
    )


_FOREGROUND = (
    (r"(redis|valkey)-(server|sentinel)", "`--daemonize no` (or `daemonize no` in its file)"),
    (r"nginx|openresty", "`nginx -g 'daemon off;'`"),
    (r"postgres|postmaster|pg_ctl", "`postgres -D DIRECTORY` itself, not pg_ctl"),
    (r"pg_ctlcluster", "`pg_ctlcluster --foreground`"),
    (r"apache2|apache2ctl|apachectl|httpd", "`-D FOREGROUND`"),
    (r"php-fpm[0-9.]*", "`--nodaemonize`"),
    (r"haproxy", "`-db`, and no `-D`"),
    (r"memcached", "no `-d`"),
)


def _words(command: Sequence[str]) -> list[str]:
    """The words of a command, those in a `sh -c` string too."""
    words: list[str] = []
    for word in command:
        try:
            words += shlex.split(word) if " " in word else [word]
        except ValueError:
            words.append(word)
    return words


def env_file_problem(path: str) -> str:
    """Why an env_file is not for this program alone, "" if it is, or if it is not there at all."""
    mode = _mode(Path(path))
    if not mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        return ""
    return f"{path} may have secrets, and others can read or change it: chmod o=,g-w {path}"


def unreadable_by(identity: Identity | None, path: str) -> str:
    """Why a program of that user could not read a file itself, "" if it could: the tree names the
    file, and the agent reads it for the program."""
    if identity is None or identity.uid in (0, os.geteuid()):
        return ""
    real = Path(path).resolve()
    for place in (*reversed(real.parents), real):
        bit = 4 if place == real else 1
        try:
            found = place.stat()
        except OSError as error:
            return f"{path}: {(error.strerror or str(error)).lower()}"
        shift = 0
        if found.st_uid == identity.uid:
            shift = 6
        elif found.st_gid in (identity.gid, *identity.groups):
            shift = 3
        if not found.st_mode & (bit << shift):
            return f"{path} is not for {identity.name} to read: it is closed by {place}"
    return ""


def _is_the_nodes(path: str, own: Path | None) -> bool:
    """Whether a file is root's or the agent's, and not what the agent wrote for the tree: that may
    name any file that there is."""
    try:
        real = Path(path).resolve(strict=True)
        if own is not None and real.is_relative_to(own.resolve()):
            return False
        return real.stat().st_uid in (0, os.geteuid())
    except OSError:
        return False


def _read_env_file(path: Path) -> dict[str, str]:
    if problem := env_file_problem(str(path)):
        raise SpecErrors([SpecError(str(path), 0, "env_file", problem)])
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        why = "not UTF-8: expected a text file"
    except OSError as error:
        why = f"the env_file cannot be read: {(error.strerror or str(error)).lower()}"
    else:
        return parse_env_file(text, str(path))
    raise SpecErrors([SpecError(str(path), 0, "", why)])


def _unquoted(text: str) -> str:
    """A value without its quotes. Raises ValueError."""
    if "\0" in text:
        raise ValueError("a null character cannot be part of a variable")
    if not text or text[0] not in "\"'":
        return text
    if text[0] == "'":
        value, quote, rest = text[1:].partition("'")
        closed = bool(quote)
    else:
        value, closed, rest = _double_quoted(text[1:])
    if not closed:
        raise ValueError(f"the quote {text[0]} is not closed on this line")
    rest = rest.strip()
    if rest and not rest.startswith("#"):
        raise ValueError("expected nothing after the closing quote")
    return value


def _double_quoted(text: str) -> tuple[str, bool, str]:
    """The value up to the closing quote, whether there is one, and what follows it."""
    value = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char == '"':
            return value, True, text[at + 1 :]
        if char == "\\" and at + 1 < len(text) and text[at + 1] in _ESCAPES:
            char = _ESCAPES[text[at + 1]]
            at += 1
        value += char
        at += 1
    return value, False, ""


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
