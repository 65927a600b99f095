"""`incumbent up [FILE]`: a server, a node and the components of FILE, until Ctrl-C.

    read FILE ─► lock .incumbent ─► start server and guardian, side by side
              ─► write the components ─► let the agent go ─► watch, and restart what dies
              ─► Ctrl-C: guardian (which stops everything in order), then server

Rule of this file: nothing starts before FILE is right and the folder is ours. Server and
guardian have sessions of their own, so that the terminal's signals reach only this process;
if it is killed, both stop by themselves.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from incumbent.cli.exits import NO, USAGE, Parser, failed, say
from incumbent.cli.folder import Folder
from incumbent.cli.live import Screen
from incumbent.cli.process import Child, module
from incumbent.errors import IncumbentError, SpecError, SpecErrors
from incumbent.settings import Settings
from incumbent.spec import Spec, read_specs, settings_of

__all__ = ["PORT", "SESSION", "Scene", "main", "stop_signals"]

PORT = 2181
SESSION = 10.0


def main(argv: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    options = _parser().parse_args(argv)
    screen = Screen()
    file = Path(options.file).absolute()
    folder = Folder(file.parent / ".incumbent")
    try:
        settings = _settings(file)
        specs = read_specs(file, folder=file.parent)
        folder.lock()
        folder.await_earlier(screen.line)
        if options.fresh:
            folder.empty(screen.line)
    except SpecErrors as error:
        return failed(error)
    except IncumbentError as error:
        return failed(error, USAGE)
    except KeyboardInterrupt:
        return NO
    scene = Scene(file=file, specs=specs, settings=settings, folder=folder, screen=screen)
    early: list[int] = []  # told to stop before anybody listens: not forgotten
    for number in stop_signals():
        signal.signal(number, lambda number, _frame: early.append(number))
    try:
        server, guardian = scene.start()
    except OSError as error:
        say(f"{folder.path} cannot be used: {(error.strerror or str(error)).lower()}")
        return USAGE

    from incumbent.cli.running import run  # while they start

    return run(scene, server, guardian, early)


def stop_signals() -> list[signal.Signals]:
    """What tells us to stop; a hangup not where nohup has it ignored."""
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_nohup else [signal.SIGHUP])]


def _parser() -> Parser:
    parser = Parser(
        prog="incumbent up",
        description="Run the components of FILE on this machine until Ctrl-C, which stops them in "
        "the reverse order of FILE; Ctrl-C again kills them at once.",
        epilog="A ZooKeeper server (127.0.0.1:2181, or a free port if that is taken) and a node "
        "are started with it, and again if they die; their data is in .incumbent beside FILE. "
        "FILE is the whole truth here: a component that it no longer has is removed at the next "
        "`up`, one that an operator stopped is started again. Any other terminal of this user "
        "finds it: `incumbent status`, `incumbent logs NAME -f`.",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", default="incumbent.toml")
    parser.add_argument(
        "--fresh", action="store_true", help="forget everything of earlier runs (.incumbent)"
    )
    return parser


def _settings(file: Path) -> Settings:
    """What FILE and the environment say; but ZooKeeper is our own. Raises `SpecErrors`."""
    settings = settings_of(file, {})
    if settings.origins["zookeeper"] == str(file):
        text = (
            "`incumbent up` starts a server of its own: take this line out, or use "
            f"`incumbent agent` and `incumbent apply {file.name}` with that ZooKeeper"
        )
        raise SpecErrors([SpecError(str(file), 0, "incumbent.zookeeper", text)])
    return settings


def _listener() -> socket.socket:
    """Listening on port 2181, or if that is taken on another one: ours as long as we live.

    Looked at first and taken later, it might be somebody else's server by then.
    """
    for port in (PORT, 0):
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            sock.listen()
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise
        return sock
    raise AssertionError("the kernel has no free port")


@dataclass(slots=True, kw_only=True)
class Scene:
    """What runs, where, and for whom: the two processes and how to start them again.

    `listens_fd` is readable once the server listens, or has ended; the agent is let go by a byte
    on `go_fd`. `life` is a pipe whose writing end we, the guardian and its agent have: the
    server, which they need to stop in order, stops when all of them have ended. `listener` is
    the server's socket, in all its lives: nobody can be in its place while it is away.
    """

    file: Path
    specs: Sequence[Spec]
    settings: Settings
    folder: Folder
    screen: Screen
    listener: socket.socket = field(default_factory=_listener)
    life: tuple[int, int] = field(default_factory=os.pipe)
    listens_fd: int = -1
    go_fd: int = -1

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def session(self) -> float:
        """Seconds; of the agent."""
        asked = self.settings.session_timeout
        return SESSION if asked is None else asked

    def start(self) -> tuple[Child, Child]:
        """Server and guardian, side by side; the agent is held back until the tree is right.

        Where the tree is new there is nothing in it that could be wrong, and nothing is held.
        """
        for name in ("server", "agent"):
            self.folder.rotate(name)
        self.folder.credentials.make()
        is_new = not self.folder.server.exists()
        self.listens_fd, ready_fd = os.pipe()
        after_fd, self.go_fd = os.pipe()
        server = self.start_server("--ready-fd", str(ready_fd), pass_fds=(ready_fd,))
        hold = () if is_new else ("--after-fd", str(after_fd))
        guardian = self.start_guardian(*hold, pass_fds=(after_fd,) if hold else ())
        os.close(ready_fd)
        os.close(after_fd)
        return server, guardian

    def start_server(self, *more: str, pass_fds: Sequence[int] = ()) -> Child:
        argv = module("incumbent.server", "--data", str(self.folder.server))
        ours = (self.life[0], self.listener.fileno())
        argv += ["--until-fd", str(ours[0]), "--listen-fd", str(ours[1]), *more]
        return Child(argv, self.folder.log("server"), pass_fds=(*ours, *pass_fds))

    def start_guardian(self, *more: str, pass_fds: Sequence[int] = ()) -> Child:
        argv = module("incumbent.cli", "agent", "--zookeeper", self.hosts)
        argv += ["--node", self.settings.node, "--root", self.settings.root, "--tick", "0"]
        argv += ["--data", str(self.folder.agent), "--session-timeout", f"{self.session:g}"]
        argv += ["--auth", str(self.folder.credentials.agents)]
        argv += ["--parent-death", str(os.getpid())]
        argv += ["--stop-order", ",".join(spec.name for spec in self.specs), *more]
        return Child(argv, self.folder.log("agent"), pass_fds=(self.life[1], *pass_fds))
