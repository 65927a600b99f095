"""A program that says how it is: `well.py FOLDER [hangs]`, as long as FOLDER says so.

FOLDER/ready exists: it says READY=1. FOLDER/hung: it says nothing any more.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])


def speak(words: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(words.encode(), os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))


speak("STATUS=loading")
while not (FOLDER / "ready").exists():
    time.sleep(0.02)
speak("READY=1\nSTATUS=")
pause = int(os.environ.get("WATCHDOG_USEC", "1000000")) / 4e6
while True:
    if not (FOLDER / "hung").exists():
        speak("WATCHDOG=1")
    time.sleep(pause)
