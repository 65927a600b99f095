"""The exit codes of `lock` and `once` that are not COMMAND's.

Rule of this file: 120 to 125 are ours; 124 to 127 mean what they mean to `timeout` and shells.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CANNOT", "INTERRUPTED", "LATE", "LOST", "NOT_FOUND"]

LOST: Final = 120
"""What COMMAND ran under was lost: it was stopped, and is proven dead."""
INTERRUPTED: Final = 121
"""An earlier run was interrupted, how far it came is not known, and nothing was run."""
LATE: Final = 124
"""Not had within --timeout; nothing was run."""
CANNOT: Final = 125
"""Usage, or something that makes it impossible to go on; the line on stderr says what ran."""
NOT_FOUND: Final = 127
"""COMMAND cannot be started here; nothing was run."""
