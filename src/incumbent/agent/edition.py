"""What an instance is started with: a spec, and the values of the configuration that it uses.

Rule of this file: pure. An edition is made of what operators wrote, now or before, and of nothing
else: a mark only says which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from incumbent.agent.tree import Mark
from incumbent.spec import Spec, like, program

__all__ = ["Edition", "current", "earlier_one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """`program` is short for the spec's; `values`: by key, of what it uses and what is set."""

    spec: Spec
    program: str
    values: Mapping[str, str]

    @property
    def digests(self) -> dict[str, str]:
        """Variable → digest of its value."""
        return {
            name: _digest(self.values[use.key])
            for name, use in self.spec.config.items()
            if use.key in self.values
        }

    @property
    def mark(self) -> Mark:
        """What is compared to know whether an instance is out of date."""
        config = {} if self.spec.on_config == "none" else self.digests
        return Mark(program=self.program, config=config)

    @property
    def unset(self) -> str:
        """A key that it uses and nobody has set; "" if there is none."""
        keys = (use.key for use in self.spec.config.values() if use.key)
        return next((key for key in keys if key not in self.values), "")


def current(spec: Spec, program_: str, config: Mapping[str, str]) -> Edition:
    """As things are now."""
    keys = [use.key for use in spec.config.values()]
    return Edition(
        spec=spec, program=program_, values={key: config[key] for key in keys if key in config}
    )


def earlier_one(
    mark: Mark, spec: Spec, before: Sequence[Spec], values: Mapping[str, Sequence[str]]
) -> Edition | None:
    """The edition of this mark, made of the `spec` that there is and those `before` it, and of the
    `values` that each key has and had, newest first; None: what it was made of is not kept any more.
    """
    its = next((each for each in (spec, *before) if program(each) == mark.program), None)
    if its is None:
        return None
    found: dict[str, str] = {}
    for name, use in its.config.items():
        if not use.key:
            continue
        digest, had = mark.config.get(name), values.get(use.key, ())
        value = next((each for each in had if digest in (None, _digest(each))), None)
        if value is None:
            return None
        found[use.key] = value
    return Edition(spec=like(spec, its), program=mark.program, values=found)


def _digest(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
