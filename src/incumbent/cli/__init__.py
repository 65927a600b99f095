"""The command line: `incumbent COMMAND …`.

Rule of this file: it imports next to nothing before it has said what Ctrl-C does. While a command
loads, nothing is there to be stopped in order: the process simply ends. Then the command hears it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

__all__ = ["main"]


def main() -> None:
    """The `incumbent` script."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else: ignored

    def on_ctrl_c(handler: signal.Handlers | Callable[..., object]) -> None:
        if is_heard:
            signal.signal(signal.SIGINT, handler)

    on_ctrl_c(signal.SIG_DFL)

    from incumbent.cli.dispatch import dispatch
    from incumbent.cli.exits import interrupted
    from incumbent.cli.stdio import open_closed

    open_closed()
    try:
        code = dispatch(sys.argv[1:], loaded=lambda: on_ctrl_c(signal.default_int_handler))
    except KeyboardInterrupt:
        code = interrupted()
    on_ctrl_c(signal.SIG_DFL)
    sys.exit(code)
