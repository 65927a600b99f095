"""A `Procfile`: a program a line, `web: python -m http.server $PORT`, read into specs.

Rule of this file: what needs a shell runs in one, as everywhere where Procfiles are used; what does
not, runs by itself, and gets the stop signal itself.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from incumbent.errors import SpecError, SpecErrors
from incumbent.settings import name_problem
from incumbent.spec.spec import Spec

__all__ = ["is_procfile", "parse_procfile"]

_FOR_A_SHELL = re.compile(r"""[|&;<>()$`*?\[\]{}~!#]|^\s*\w+=""")


def is_procfile(path: Path) -> bool:
    """By its name: Procfile, Procfile.dev."""
    return path.name == "Procfile" or path.name.startswith("Procfile.")


def parse_procfile(raw: bytes, name: str, *, folder: Path | None = None) -> tuple[Spec, ...]:
    """Its programs, in the order of the file. Raises `SpecErrors`. `folder`: where they run."""
    problems: list[SpecError] = []
    specs: dict[str, Spec] = {}
    cwd = str(folder.absolute()) if folder is not None else None
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        component, colon, command = line.partition(":")
        component, command = component.strip(), command.strip()
        what = ""
        if not colon:
            what = f"expected NAME: COMMAND, got {line.strip()!r}"
        elif problem := name_problem(component):
            what = f"{component!r} is no component's name: {problem}"
        elif not command:
            what = f"no command: expected {component}: program argument …"
        elif component in specs:
            what = f"{component} stands here for the second time; expected each name once"
        if not what:
            try:
                specs[component] = Spec(name=component, command=_words(command), cwd=cwd)
            except ValueError:
                what = f"a quote is not closed in {command!r}"
        if what:
            problems.append(SpecError(name, number, "", what))
    if not specs and not problems:
        problems.append(SpecError(name, 0, "", "nothing to run: expected lines NAME: COMMAND"))
    if problems:
        raise SpecErrors(problems)
    return tuple(specs.values())


def _words(command: str) -> tuple[str, ...]:
    """Raises ValueError."""
    words = tuple(shlex.split(command))
    return ("/bin/sh", "-c", command) if _FOR_A_SHELL.search(command) else words
