"""What the guardian says on stderr: one line for each thing that happens to a seat or agent.

Rule of this file: the glossary's words, and never a passport, an environment or an argument.
"""

from __future__ import annotations

from incumbent.guardian import actions as a
from incumbent.guardian import messages as m

__all__ = ["of", "of_action", "of_event"]


def of(thing: a.Event | a.Action) -> str:
    """The line for anything that goes into the table or comes out of it."""
    return of_event(thing) if isinstance(thing, a.Event) else of_action(thing)


def of_event(event: a.Event) -> str:
    """The line for what happened, "" for what is not worth one."""
    match event:
        case a.SeatStarted(seat, epoch, pid, _, main):
            return f"{seat} epoch {epoch}: started, pid {main or pid} (first of its tree: {pid})"
        case a.SpawnFailed(seat, epoch, why):
            return f"{seat} epoch {epoch}: not started: {why}"
        case a.MainExited(seat, epoch, code, signal, left):
            how = f"by signal {signal}" if signal else f"with code {code}"
            how = "unasked" if code is None and signal is None else how
            rest = f", {left} descendants left" if left else ""
            return f"{seat} epoch {epoch}: its main process ended {how}{rest}"
        case a.TreeEmpty(seat, epoch):
            return f"{seat} epoch {epoch}: empty, proven dead"
        case a.AgentDied(generation, code, why):
            return f"agent of generation {generation}: dead ({why or code})"
        case a.CloserFinished(is_closed, why):
            return "session closed" if is_closed else f"session not closed: {why}; it will expire"
        case a.ShutdownAsked(why):
            return f"shutdown asked: {why}"
        case _:
            return ""


def of_action(action: a.Action) -> str:
    """The line for what is done, "" for what is not worth one."""
    match action:
        case a.SpawnAgent(generation):
            return f"agent of generation {generation}: starting"
        case a.KillAgent(why):
            return f"agent: killed: {why}"
        case a.Send(m.Refused(seat=seat, epoch=epoch, why=why)):
            return f"{seat} epoch {epoch}: start refused: {why}"
        case a.Send(m.Stopping(seat=seat, epoch=epoch, why=why)):
            return f"{seat} epoch {epoch}: stopping: {why}"
        case a.Send(m.Stuck(seat=seat, epoch=epoch)):
            return f"{seat} epoch {epoch}: stuck: alive after SIGKILL, killing goes on"
        case a.KillTree(seat, epoch, why) if why:
            return f"{seat} epoch {epoch}: killing: {why}"
        case a.RunCloser(_, _, breadcrumbs):
            return f"closing the session; breadcrumbs to delete: {len(breadcrumbs)}"
        case a.Exit(code, why):
            return f"exit with code {code}: {why}"
        case _:
            return ""
