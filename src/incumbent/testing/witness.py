"""The test program: it runs as a component and testifies that it ran, and that nobody else did.

    python -S -E witness.py JOURNAL LOCKS [options] [-- COMMAND...]

It appends to the file JOURNAL a line {boottime_ns, seat, epoch, node, pid, event} at its start,
every 5 ms, and at its stop, and holds an exclusive flock on a file of its seat in the directory
LOCKS. Whoever fails to get that lock records an overlap. The kernel frees the lock exactly when
the last process that inherited it is gone, so this holds under SIGKILL, and a descendant that
outlives its instance is an overlap of the next one. Nothing unlocks: a lock ends with its holders.

    --ignore-term       SIGTERM does nothing          --exit-after S   ends by itself after S seconds
    --stop-takes S      it takes S seconds to stop    --code N         …with this exit code
    --fork              a child in a session of its own goes on, ticks, ignores what we ignore
    --background        the parent exits 0 at once, the child is the program
    --flood             fills stdout as fast as it is read       --close-stdout   closes 0, 1, 2
    -- COMMAND...       the process becomes COMMAND, and holds the lock; a child goes on ticking

Rule of this file: standard library only, nothing of ours, started in a few milliseconds (by its
path, see `command`); one write() a line.
"""

import fcntl
import os
import signal
import sys
import time

__all__ = ["Witness", "command", "main"]

_TICK = 0.005
_ORDERS = {signal.SIGTERM, signal.SIGINT}


def command(journal: str, locks: str, *options: str) -> list[str]:
    """The argv that starts a witness."""
    return [sys.executable, "-S", "-E", os.path.abspath(__file__), journal, locks, *options]  # noqa: PTH100


class Witness:
    """One instance of a seat: its journal, and the lock it was born with."""

    def __init__(self, journal: str, locks: str) -> None:
        component = os.environ.get("INCUMBENT_COMPONENT", "test")
        self.seat = os.environ.get("INCUMBENT_SEAT", component)
        self.epoch = int(os.environ.get("INCUMBENT_EPOCH", "0"))
        self.node = os.environ.get("INCUMBENT_NODE", "")
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        self.journal = os.open(journal, flags, 0o644)
        self.lock = os.open(f"{locks}/{self.seat.replace('/', '-')}.lock", flags, 0o644)

    def write(self, event: str) -> None:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        line = (
            f'{{"boottime_ns": {now}, "seat": "{self.seat}", "epoch": {self.epoch}, '
            f'"node": "{self.node}", "pid": {os.getpid()}, "event": "{event}"}}\n'
        )
        try:
            os.write(self.journal, line.encode())
        except OSError as error:  # a full disk silences the journal, not the lock
            print(error, file=sys.stderr)

    def take_lock(self) -> None:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.write("overlap")

    def run(self, *, ignore: bool, flood: bool, until: float, stop_takes: float) -> None:
        """Tick until ordered to stop or `until`; never later than `stop_takes` after an order."""
        block = b"witness " * 512
        tick_at = time.monotonic()
        while (now := time.monotonic()) < until:
            self.write("tick")
            if flood:
                _pour(block)
            # A fixed beat: what a tick took is not added to its distance from the next.
            tick_at = max(tick_at + _TICK, now)
            ordered = signal.sigtimedwait(_ORDERS, max(0.0, tick_at - time.monotonic()))
            if ordered is not None and not ignore:
                ignore = True
                until = min(until, time.monotonic() + stop_takes)


def _become(command: list[str], lock: int) -> None:
    """Execute a program in our place, as if nothing had been before it. It keeps the lock."""
    os.set_inheritable(lock, True)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ORDERS)
    os.execvp(command[0], command)


def _pour(block: bytes) -> None:
    try:
        while True:
            os.write(1, block)
    except OSError:
        return  # the pipe is full, or closed


def _number(options: list[str], name: str, default: float) -> float:
    return float(options[options.index(name) + 1]) if name in options else default


def main(argv: list[str]) -> int:
    journal, locks, *options = argv
    at = options.index("--") if "--" in options else len(options)
    options, command = options[:at], options[at + 1 :]
    signal.pthread_sigmask(signal.SIG_BLOCK, _ORDERS)
    if "--background" in options and os.fork():
        return 0
    witness = Witness(journal, locks)
    witness.take_lock()
    witness.write("start")
    if command and os.fork():
        _become(command, witness.lock)
    ignore = "--ignore-term" in options
    life = _number(options, "--exit-after", float("inf"))
    until = time.monotonic() + life
    if "--background" in options:
        os.setsid()
    if "--close-stdout" in options:
        os.closerange(0, 3)
    if "--flood" in options:
        os.set_blocking(1, False)
    if "--fork" in options and os.fork() == 0:
        os.setsid()
        # It ticks under its own pid; its end is not the instance's, so it writes no stop.
        witness.run(ignore=ignore, flood=False, until=float("inf"), stop_takes=0.0)
        return 0
    witness.run(
        ignore=ignore,
        flood="--flood" in options,
        until=until,
        stop_takes=_number(options, "--stop-takes", 0.0),
    )
    if not command:  # else the end of the witness is not the program's
        witness.write("stop")
    return int(_number(options, "--code", 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
