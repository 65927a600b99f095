"""Programs that put themselves in the background: how that shows, and which switch keeps them.

Rule of this file: pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

__all__ = ["BACKGROUND_WITHIN", "foreground_switch", "went_background"]

BACKGROUND_WITHIN = 5.0
"""Seconds: a main process that exits with 0 sooner, its children alive, has daemonized."""


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
