"""A file with `${NAME}` in it, made into one with the values: of the configuration, and of all else
that the program has in its environment.

`$${NAME}` is `${NAME}` as it stands; a `$` without a brace is left alone, as in nginx's files.

Rule of this file: pure. A name that has no value is an error that says which, and on which line; no
value is part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from incumbent.errors import SpecError, SpecErrors
from incumbent.toml_file import did_you_mean

__all__ = ["render"]

_PLACE = re.compile(r"\$\$(?=\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


def render(text: str, variables: Mapping[str, str], name: str) -> str:
    """The text with its values. `name`: of the file, for messages. Raises `SpecErrors`."""
    problems: list[SpecError] = []

    def value(found: re.Match[str]) -> str:
        wanted, line = found[1], text.count("\n", 0, found.start()) + 1
        if found[0] == "$$":
            return "$"
        if wanted is None:
            what = "`${` begins no name: expected `${NAME}`, or `$${` for what is to stay"
            problems.append(SpecError(name, line, "", what))
        elif wanted not in variables:
            hint = did_you_mean(wanted, list(variables)) or "; `config` or `env` may set it"
            problems.append(SpecError(name, line, wanted, f"it has no value{hint}"))
        else:
            return variables[wanted]
        return ""

    rendered = _PLACE.sub(value, text)
    if problems:
        raise SpecErrors(problems)
    return rendered
