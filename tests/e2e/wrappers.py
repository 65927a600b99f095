"""`incumbent elect`, `lock` and `once` as tests start and kill them.

Rule of this file: COMMAND is the auditor's witness wherever "never two" is the matter.
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.terminals import Terminal, Terminals
from tests.waiting import wait_until

from incumbent.guardian.kernel import Process, processes
from incumbent.testing import witness
from incumbent.testing.auditor import audit

__all__ = ["SESSION", "Wrappers", "agent_of"]

SESSION = 1.0


class Wrappers:
    """Wrapped commands of one test; those by `witness` testify to one journal."""

    def __init__(self, terminals: Terminals, hosts: str, folder: Path) -> None:
        self.terminals, self.hosts, self.folder = terminals, hosts, folder
        self.journal = folder / "journal"
        (folder / "locks").mkdir()

    def start(
        self, name: str, verb: str, what: str, *command: str, flags: tuple[str, ...] = ()
    ) -> Terminal:
        """`incumbent VERB WHAT FLAGS -- COMMAND`, on a machine by this name."""
        return self.terminals.python(
            name,
            *("-m", "incumbent.cli", verb, what, "--zookeeper", self.hosts, "--name", name),
            *("--session-timeout", str(SESSION), *flags),
            *(("--", *command) if command else ()),
            env={"XDG_RUNTIME_DIR": str(self.folder)},  # what a killed agent leaves goes with it
        )

    def witness(
        self, name: str, verb: str, what: str, *options: str, flags: tuple[str, ...] = ()
    ) -> Terminal:
        """With the witness for COMMAND; `options` are the witness's."""
        command = witness.command(str(self.journal), str(self.folder / "locks"), *options)
        return self.start(name, verb, what, *command, flags=flags)

    def starts(self, name: str = "") -> int:
        """How many witnesses testified that they began: all, or those of one machine."""
        node = f'"node": "{name}"' if name else '"node": "'
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return sum(node in line and '"event": "start"' in line for line in lines)

    def runs(self, terminal: Terminal) -> None:
        """Wait until its COMMAND runs."""
        wait_until(lambda: self.starts(terminal.name), what=f"COMMAND of {terminal.name} to run")

    def judge(self) -> None:
        with self.journal.open() as lines:
            verdict = audit(lines)
        assert verdict.clean, str(verdict)


def agent_of(terminal: Terminal) -> int:
    """The pid of its agent."""

    def found() -> int:
        return next((each.pid for each in processes() if _is_agent_of(each, terminal.pid)), 0)

    return wait_until(found, what=f"{terminal.name} to have an agent")


def _is_agent_of(process: Process, parent: int) -> bool:
    command = Path(f"/proc/{process.pid}/cmdline")
    return process.parent == parent and b"incumbent.agent" in command.read_bytes()
