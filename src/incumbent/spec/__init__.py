"""What people declare: the components of a file, checked, and their form in ZooKeeper."""

from incumbent.spec.file import parse_specs, read_specs, settings_of
from incumbent.spec.health import Check, Hook
from incumbent.spec.spec import (
    Spec,
    changed_keys,
    decode,
    earlier,
    encode,
    is_same,
    like,
    plain,
    program,
    stored,
)

__all__ = [
    "Check",
    "Hook",
    "Spec",
    "changed_keys",
    "decode",
    "earlier",
    "encode",
    "is_same",
    "like",
    "parse_specs",
    "plain",
    "program",
    "read_specs",
    "settings_of",
    "stored",
]
