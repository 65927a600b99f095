"""The runtime file: how any other terminal of the same user finds a running `incumbent up`.

Rule of this file: a runtime file is believed only while the process that wrote it lives (pid,
start time and boot id agree) and only if it belongs to the reader's user. It holds no secret.

`up` writes it, mode 0600, as `.incumbent/runtime.json` beside its FILE and as PID.json into the
user's run folder: `$XDG_RUNTIME_DIR/incumbent`, else `/run/user/UID/incumbent`, else
`$XDG_STATE_HOME/incumbent/run`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

__all__ = [
    "Runtime",
    "beside",
    "boot_id",
    "is_alive",
    "publish",
    "read_runtime",
    "run_folders",
    "start_time",
    "withdraw",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a running `up` tells. `start_time` is in clock ticks since boot, as /proc has it."""

    pid: int
    start_time: int
    boot_id: str
    file: str
    """The component file, absolute."""
    zookeeper: str
    root: str
    data: str
    """The data directory of its agent, absolute."""
    node: str
    session_timeout: float | None = None
    tick: float | None = None
    auth: str | None = None
    """The file with the operators' credential, absolute."""

    @classmethod
    def of_this_process(
        cls,
        *,
        file: Path,
        zookeeper: str,
        root: str,
        data: Path,
        node: str,
        session_timeout: float | None = None,
        tick: float | None = None,
        auth: Path | None = None,
    ) -> Runtime:
        """The runtime of the calling process."""
        return cls(
            pid=os.getpid(),
            start_time=start_time(os.getpid()) or 0,
            boot_id=boot_id(),
            file=str(file.absolute()),
            zookeeper=zookeeper,
            root=root,
            data=str(data.absolute()),
            node=node,
            session_timeout=session_timeout,
            tick=tick,
            auth=None if auth is None else str(auth.absolute()),
        )


def beside(folder: Path) -> Path:
    """The runtime file of the `up` whose FILE stands in `folder`."""
    return folder / ".incumbent" / "runtime.json"


def run_folders(environ: Mapping[str, str], uid: int) -> list[Path]:
    """The folders in which this user's `up`s may stand, the preferred one first."""
    state = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME') or '/'}/.local/state"
    folders = [Path(f"/run/user/{uid}/incumbent"), Path(state) / "incumbent" / "run"]
    if xdg := environ.get("XDG_RUNTIME_DIR"):
        folders.insert(0, Path(xdg) / "incumbent")
    return list(dict.fromkeys(folders))


def publish(runtime: Runtime, folder: Path, environ: Mapping[str, str], uid: int) -> list[Path]:
    """Write the runtime file beside FILE in `folder` and into the first run folder that takes it.

    Returns what was written, for `withdraw`. Raises OSError if the one beside FILE cannot be
    written; the other is a convenience and may fail quietly.
    """
    written = [beside(folder)]
    _write(written[0], runtime)
    for run in run_folders(environ, uid):
        if not run.parent.is_dir() and run.name != "run":
            continue  # the system did not make this user's run directory: it isn't ours to make
        with contextlib.suppress(OSError):
            _sweep(run)
            _write(run / f"{runtime.pid}.json", runtime)
            written.append(run / f"{runtime.pid}.json")
            break
    return written


def withdraw(runtime: Runtime, written: Sequence[Path]) -> None:
    """Remove what `publish` wrote, unless another process has written there since."""
    for path in written:
        if read_runtime(path) == runtime:
            path.unlink(missing_ok=True)


def read_runtime(path: Path) -> Runtime | None:
    """What the file says, alive or not; None if it is absent, another user's, or unreadable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            said = json.loads(file.read())
    except ValueError:
        return None
    finally:
        os.close(fd)
    return _runtime(said)


def is_alive(runtime: Runtime) -> bool:
    """Whether the process that wrote it still runs."""
    return runtime.boot_id == boot_id() and start_time(runtime.pid) == runtime.start_time


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it does not exist or is a zombie.

    With the pid and the boot id it names one process for good.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    after_name = text[text.rindex(b")") + 2 :].split()  # the name may hold anything, `)` too
    return None if after_name[0] in (b"Z", b"X") else int(after_name[19])


def boot_id() -> str:
    """The kernel's id of this boot; "" where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _runtime(said: Any) -> Runtime | None:
    """The fields that we know; a file of another version that lacks one is no runtime file."""
    if not isinstance(said, dict):
        return None
    known = {field.name: said[field.name] for field in fields(Runtime) if field.name in said}
    try:
        runtime = Runtime(**known)
    except TypeError:
        return None
    whole = isinstance(runtime.pid, int) and isinstance(runtime.start_time, int)
    texts = (runtime.boot_id, runtime.file, runtime.zookeeper, runtime.root, runtime.data)
    return runtime if whole and all(isinstance(text, str) for text in texts) else None


def _write(path: Path, runtime: Runtime) -> None:
    """Atomic: a reader finds the old file, the new one, or none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
        json.dump({"v": 1, **asdict(runtime)}, file)
    draft.replace(path)


def _sweep(run: Path) -> None:
    """Remove what `up`s of this boot left that are gone; another machine may share the home."""
    for path in sorted(run.glob("*.json")):
        found = read_runtime(path)
        if found is not None and found.boot_id == boot_id() and not is_alive(found):
            path.unlink(missing_ok=True)
