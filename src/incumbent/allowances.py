"""What a node allows to be run on it, whatever the tree says: users and programs.

    [incumbent]
    allow_users = ["web", "redis"]
    allow_commands = ["/usr/bin/redis-server", "/srv/app/bin/*"]

in `/etc/incumbent/agent.toml`, and nowhere else. A program is judged by the path at which it is
found; `*` stands for any name within one directory. What it is told, by arguments and
environment, is not judged, but for variables by which the tree could have it run anything: those of
the loader (LD_…), PATH, and what shells and interpreters read code from.

Rule of this file: pure; what is not allowed by name is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["EVERYTHING", "Allowances"]

_CODES = (
    *("LD_", "PYTHON", "PERL5", "RUBY", "BASH_FUNC_", "NODE_", "LUA_", "PHP", "OPENSSL_", "GIT_"),
    *("DOTNET_", "CORECLR_", "COR_"),
)
_CODE = frozenset(
    (
        *("PATH", "ENV", "BASH_ENV", "ZDOTDIR", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "IFS"),
        *("GCONV_PATH", "GLIBC_TUNABLES", "PERLLIB", "CLASSPATH"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    )
)
"""Names of variables that say what else a program runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """None: everything. `source`: the file, for a sentence."""

    users: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None
    source: str = ""

    def why_not_user(self, user: str) -> str:
        """Why nothing runs here as `user`, "" if it may."""
        if self.users is None or user in self.users:
            return ""
        return f"this node runs nothing as {user} (allow_users in {self.source})"

    def why_not_program(self, executable: str, variables: Iterable[str]) -> str:
        """Why the program at this path is not run here, "" if it may. `variables`: the names of
        those that the tree sets.
        """
        if self.commands is None:
            return ""
        fits = any(_fits(executable, pattern) for pattern in self.commands)
        if ".." in executable.split("/") or not fits:
            return f"this node does not run {executable} (allow_commands in {self.source})"
        loaded = sorted(name for name in variables if name in _CODE or name.startswith(_CODES))
        if loaded:
            return (
                f"{loaded[0]} is set for it, by which it could run anything, and this node does "
                f"not (allow_commands in {self.source})"
            )
        return ""

    def to_json(self) -> dict[str, Any]:
        return {"users": self.users, "commands": self.commands, "source": self.source}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Allowances:
        def names(key: str) -> tuple[str, ...] | None:
            found: Sequence[str] | None = values[key]
            return None if found is None else tuple(found)

        return cls(users=names("users"), commands=names("commands"), source=values["source"])


def _fits(path: str, pattern: str) -> bool:
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


EVERYTHING = Allowances()
