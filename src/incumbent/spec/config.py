"""What a component uses of the cluster's configuration (`incumbent config`), and how.

    [component.web.config]
    LEVEL = "web.level"                            # the variable LEVEL has its value
    RULES = { key = "web.rules", file = true }     # a file has it; RULES is the file's path
    CONF = { template = "/etc/web/conf.in" }       # a file made of that one (see `template`)

Rule of this file: a `Use` is complete; a name is a variable's, and stands for one key or template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Annotated, Any

import msgspec

from incumbent.settings import name_problem
from incumbent.toml_file import did_you_mean, kind

__all__ = ["ON_CONFIG", "Use", "read_on_config", "read_uses"]

ON_CONFIG = ("restart", "SIGHUP", "none")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Of one `key`; or, without one, of the file `template` on the node. `file`: the key's value is in
    a file, and the variable has that one's path."""

    key: Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_.][A-Za-z0-9_.-]{0,63})?\Z")] = ""
    file: bool = False
    template: Annotated[str, msgspec.Meta(pattern=r"^/[^\0]*\Z")] | None = None


def read_uses(value: Any, wrong: Callable[..., None], reserved: Collection[str]) -> dict[str, Use]:
    """The table, sorted by name."""
    if not isinstance(value, dict):
        wrong(f'expected a table, like {{ LEVEL = "web.level" }}; got {kind(value)}')
        return {}
    found = {name: _use(name, what, wrong, reserved) for name, what in value.items()}
    return {name: use for name, use in sorted(found.items()) if use is not None}


def read_on_config(value: Any, wrong: Callable[..., None]) -> Any:
    if value not in ON_CONFIG:
        shown = f'"{value}"' if isinstance(value, str) else kind(value)
        hint = did_you_mean(value, ON_CONFIG) if isinstance(value, str) else ""
        wrong(f'expected "restart", "SIGHUP" or "none", got {shown}{hint}')
        return "restart"
    return value


def _use(
    name: str, value: Any, wrong: Callable[..., None], reserved: Collection[str]
) -> Use | None:
    if not _VARIABLE.fullmatch(name):
        wrong("no name for a variable: expected letters, digits and `_`", name)
    elif name in reserved:
        wrong("this variable is set by Incumbent; expected another name", name)
    if isinstance(value, str):
        value = {"key": value}
    if isinstance(value, dict) and "template" in value:
        return _template(name, value, wrong)
    if not isinstance(value, dict) or not isinstance(value.get("key"), str):
        expected = 'expected a key, like "web.level", or { key = "web.rules", file = true }'
        wrong(f"{expected}; got {kind(value)}", name)
        return None
    for key in value:
        if key not in ("key", "file"):
            hint = did_you_mean(key, ("key", "file", "template")) or "; expected key, file"
            wrong(f"unknown key{hint}", name, key)
    if not isinstance(value.get("file", False), bool):
        wrong(f"expected true or false, got {kind(value['file'])}", name, "file")
        return None
    if problem := name_problem(value["key"]):
        wrong(f"{value['key']!r} is no key of the configuration: {problem}", name)
        return None
    return Use(key=value["key"], file=value.get("file", False))


def _template(name: str, value: dict[str, Any], wrong: Callable[..., None]) -> Use | None:
    path = value["template"]
    if len(value) > 1:
        others = ", ".join(key for key in value if key != "template")
        wrong(
            f"a template has the values of all keys above it; expected it alone, got {others} too",
            name,
        )
        return None
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        got = repr(path) if isinstance(path, str) else kind(path)
        wrong(
            f"expected an absolute path, got {got}: the file is read on the node", name, "template"
        )
        return None
    return Use(template=path)
