"""An agent without a will: `relaying_agent.py SOCKET --link-fd N` copies bytes both ways.

The test listens at SOCKET and is the agent.
"""

from __future__ import annotations

import os
import select
import socket
import sys


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[sys.argv.index("--link-fd") + 1]))
    test = socket.socket(socket.AF_UNIX)
    test.connect(sys.argv[1])
    test.sendall(b"%d\n" % os.getpid())
    while True:
        for ready in select.select([link, test], [], [])[0]:
            data = ready.recv(65536)
            if not data:
                return
            (test if ready is link else link).sendall(data)


main()
