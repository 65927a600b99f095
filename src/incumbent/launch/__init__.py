"""From a spec to a program about to be started on this node."""

from incumbent.launch.background import BACKGROUND_WITHIN, foreground_switch, went_background
from incumbent.launch.env_file import parse_env_file
from incumbent.launch.identity import Identity, identity_of, user_of, user_problem
from incumbent.launch.named_file import LARGEST, NamedFile, read_named
from incumbent.launch.start import (
    Launch,
    launch,
    missing_requirements,
    program_environment,
    refusal,
)

__all__ = [
    "BACKGROUND_WITHIN",
    "LARGEST",
    "Identity",
    "Launch",
    "NamedFile",
    "foreground_switch",
    "identity_of",
    "launch",
    "missing_requirements",
    "parse_env_file",
    "program_environment",
    "read_named",
    "refusal",
    "user_of",
    "user_problem",
    "went_background",
]
