"""Programs that misbehave: `nasty.py KIND MARKER [READY_FILE]`.

MARKER is in the command line of every process of the tree, so that a test finds each one
from outside, whatever session, group or namespace it went to. READY_FILE appears once the
program has done its worst. READY_FILE.lock is locked for as long as anybody of the tree
lives, however fast it changes its pid.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from pathlib import Path


def sleep_for_ever() -> None:
    while True:
        time.sleep(3600)


def ignore_stop() -> None:
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, signal.SIG_IGN)


def daughter(then: object = None) -> None:
    """Fork twice with setsid in between: nobody's child, in nobody's group."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ignore_stop()
            Path(sys.argv[3] + ".daughter").touch()
            sleep_for_ever()
        os._exit(0)
    os.wait()


def breed(pause: float) -> None:
    """Always a new pid: each one forks the next and dies."""
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(pause)


def speak(*words: str) -> None:
    """As systemd's sd_notify does."""
    address = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        for word in words:
            sock.sendto(word.encode(), address.replace("@", "\0", 1))


def ready() -> None:
    if len(sys.argv) > 3:
        Path(sys.argv[3]).touch()


def main() -> None:
    kind = sys.argv[1]
    if kind != "tells":
        fcntl.flock(os.open(sys.argv[3] + ".lock", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
    if kind == "plain":
        ready()
        sleep_for_ever()
    elif kind == "ignores-stop":
        ignore_stop()
        ready()
        sleep_for_ever()
    elif kind == "daughter":
        daughter()
        ready()
        sleep_for_ever()
    elif kind == "stopped-daughter":  # nobody's child, and frozen
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                ready()
                os.kill(os.getpid(), signal.SIGSTOP)
                sleep_for_ever()
            os._exit(0)
        ignore_stop()
        sleep_for_ever()
    elif kind == "leaves-cgroup":  # sys.argv[4]: another one's cgroup.procs
        if os.fork() == 0:
            ignore_stop()
            Path(sys.argv[4]).write_text(str(os.getpid()))
            Path(sys.argv[3] + ".daughter").touch()
            sleep_for_ever()
        while not Path(sys.argv[3] + ".daughter").exists():
            time.sleep(0.01)
        ready()
        sleep_for_ever()
    elif kind == "background":
        daughter()
        ready()
    elif kind in ("breeder", "fast-breeder"):
        if os.fork() == 0:
            breed(0.002 if kind == "breeder" else 0.0)
        ready()
        sleep_for_ever()
    elif kind == "floods":
        ready()
        while True:
            os.write(1, b"a line of a flood\n" * 1000)
    elif kind == "closes-output":
        os.close(1)
        os.close(2)
        ready()
        sleep_for_ever()
    elif kind == "stops-itself":
        ready()
        os.kill(os.getpid(), signal.SIGSTOP)
        sleep_for_ever()
    elif kind == "exits":
        ready()
        sys.exit(int(sys.argv[4]))
    elif kind == "says":
        print(sys.argv[4], flush=True)
        ready()
        sleep_for_ever()
    elif kind == "speaks":
        speak(*sys.argv[4:])
        ready()
        sleep_for_ever()
    elif kind == "daughter-speaks":
        if os.fork() == 0:
            os.setsid()
            speak(*sys.argv[4:])
            sleep_for_ever()
        ready()
        sleep_for_ever()
    elif kind == "chatters":
        ready()
        while True:
            speak("WATCHDOG=1\nSTATUS=chatter", "nonsense", "=\0\n=")
    elif kind == "writes-a-line":
        os.write(int(sys.argv[4]), sys.argv[5].encode())
        os.close(int(sys.argv[4]))
        ready()
        sleep_for_ever()
    elif kind == "tells":
        Path(sys.argv[4]).write_text(
            "\n".join(
                [
                    repr(dict(os.environ)),
                    repr(
                        sorted(
                            int(each)
                            for each in os.listdir("/proc/self/fd")  # noqa: PTH208
                        )
                    ),
                    repr(os.getsid(0) == os.getpid()),
                    repr(str(Path("/proc/self/fd/0").readlink())),
                    repr(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))),
                    repr(signal.getsignal(signal.SIGPIPE) is not None),
                    str(Path.cwd()),
                ]
            )
        )
        ready()
        sleep_for_ever()


main()
