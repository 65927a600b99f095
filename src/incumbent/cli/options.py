"""The options that several commands have, and what they mean.

Rule of this file: a name means the same at every command.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsOutput", "Data", "Hosts", "Output", "Root"]


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


Hosts = Annotated[
    str | None,
    typer.Option("--zookeeper", metavar="HOST:PORT,…", help="Where ZooKeeper is."),
]
Root = Annotated[
    str | None, typer.Option("--root", metavar="PATH", help="The znode of everything.")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data directory of the agent on this machine."),
]
AsOutput = Annotated[Output, typer.Option("--output", "-o", help="How to print the answer.")]
