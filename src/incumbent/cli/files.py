"""The two credentials that close a tree, each in a file that only its owner can read.

Rule of this file: a credential that is there is kept; a file is whole, or not there.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from incumbent.agent.tree import Access
from incumbent.credentials import digest_id, read_auth

__all__ = ["Files"]


@dataclass(frozen=True, slots=True)
class Files:
    """The two credentials, each in a file that only its owner can read."""

    folder: Path

    @property
    def operators(self) -> Path:
        return self.folder / "operators.auth"

    @property
    def agents(self) -> Path:
        return self.folder / "agents.auth"

    def make(self) -> None:
        """Those that are not there yet. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, path in (("operators", self.operators), ("agents", self.agents)):
            if path.exists():
                continue
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
                file.write(f"digest:{name}:{random.SystemRandom().getrandbits(192):048x}\n")
            draft.replace(path)

    def access(self, *, readable: bool = False) -> Access:
        """Raises `SpecErrors`."""
        return Access(
            operators=_ids_in(self.operators), agents=_ids_in(self.agents), readable=readable
        )


def _ids_in(file: Path) -> list[str]:
    """What ACLs call whoever shows this file. Raises `SpecErrors`."""
    return [
        f"digest:{digest_id(each)}"
        if scheme == "digest"
        else f"{scheme}:{each.partition(b':')[0].decode()}"
        for scheme, each in read_auth(file)
    ]
