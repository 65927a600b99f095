"""Seeds that once failed, each with what it found. They run first.

A seed means a schedule only together with the code of its day: one that has long passed may say
nothing any more. What it found has, where possible, a test of its own besides.
"""

from __future__ import annotations

__all__ = ["CLUSTER", "ELECTION", "ELECTION_ON_BAD_DISKS", "SCRIBBLED"]

ELECTION: dict[int, str] = {
    141: "a create that waited for the next session stood there unknown to its owner, for ever",
}

CLUSTER: dict[int, str] = {
    18: "a swept instance's breadcrumb, left by a session that its own agent had lost",
    25: "the same with another node",
    124: "an agent cut off while it made the skeleton left refusals that nobody looked at",
}

ELECTION_ON_BAD_DISKS: dict[int, str] = {
    0: "a place whose deletion a full disk refused was left in its queue, for ever",
}
"""With all kinds of fault, those of disks among them."""

SCRIBBLED: dict[int, str] = {
    5055: "an old breadcrumb put back by hand was not vouched for again; nobody saw nodes put right",
}
"""Where somebody writes over znodes of ours, and puts them right."""
