"""`incumbent zk …`: znodes from a terminal or a script.

Rule of this file: the list of its commands, in the order of the help.
"""

from __future__ import annotations

import typer

from incumbent.cli import zk_read, zk_write

__all__ = ["zk_app"]

zk_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Znodes: ls, tree, get, set, create, rm, stat, watch, acl, cp.",
)

zk_app.command()(zk_read.ls)
zk_app.command()(zk_read.tree)
zk_app.command()(zk_read.get)
zk_app.command("set")(zk_write.set_)
zk_app.command()(zk_write.create)
zk_app.command()(zk_write.rm)
zk_app.command()(zk_read.stat)
zk_app.command()(zk_read.watch)
zk_app.command()(zk_write.acl)
zk_app.command()(zk_write.cp)
