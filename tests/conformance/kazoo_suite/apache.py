"""One Apache ZooKeeper server for kazoo's tests: `python -m … PORT DIRECTORY`, until SIGTERM."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.apache import ApacheServer

__all__ = ["main"]

_SUPER = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="  # the password is "test"; kazoo's harness sets it


def main(argv: Sequence[str]) -> int:
    port, directory = int(argv[0]), Path(argv[1])
    properties = {
        "file.encoding": "UTF-8",
        "zookeeper.DigestAuthenticationProvider.superDigest": _SUPER,
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with ApacheServer(directory, port=port, properties=properties):
        print(f"listening on {port}", flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
