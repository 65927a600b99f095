"""Closing the tree: what `incumbent init` does, and `up` for itself.

    the files with both credentials ─► /access says who may do what ─► every znode's ACL, from the
    root down, again until a look at all of them finds nothing to change

Rule of this file: agents go on meanwhile: nothing is taken from them before they show the
credential by which they will be known. Done again it changes nothing.
"""

from __future__ import annotations

from incumbent.agent.access import acls
from incumbent.agent.tree import Access, NodeFacts, Tree, UnreadableZnode, read, write
from incumbent.cli.exits import No
from incumbent.cli.orders import again, make_skeleton
from incumbent.client import Client
from incumbent.errors import NoNode
from incumbent.recipes.flight import flight
from incumbent.wire import AclAndStat, Create, GetAcl, GetChildren

__all__ = ["close_tree", "read_access", "strangers"]

_ROUNDS = 20
_SHARED = ("locks", "once", "queues", "barriers")


async def read_access(client: Client, tree: Tree) -> Access | None:
    """None: the tree is open, or not there at all. Raises `NoAuth`, `UnreadableZnode`."""
    try:
        data, _stat = await client.get(tree.access)
    except NoNode:
        return None
    return read(Access, data, tree.access)


async def strangers(client: Client, tree: Tree, access: Access) -> list[str]:
    """Live nodes that do not show a credential of the agents yet: closing would stop them."""
    known = {*access.agents, *access.operators}
    found = []
    try:
        names = await client.children(tree.nodes)
    except NoNode:
        return []
    for name in sorted(names):
        try:
            facts = read(NodeFacts, (await client.get(tree.node(name)))[0], tree.node(name))
        except (NoNode, UnreadableZnode):
            continue
        if not known & set(facts.shows):
            found.append(name)
    return found


async def close_tree(client: Client, tree: Tree, access: Access) -> tuple[int, int]:
    """Make what is missing and set what is otherwise; (znodes there are, ACLs that were set).

    `client` shows the credential of an operator. Raises `NoAuth` if that is none.
    """
    client.acl_of = acls(access, tree.root)
    await again(lambda: _write_access(client, tree, access))
    await make_skeleton(client, tree)
    await again(lambda: _make_shared(client, tree))
    changed = 0
    for _ in range(_ROUNDS):
        paths, wrong = await _look(client, tree)
        if not wrong:
            return len(paths), changed
        for path in wrong:
            try:
                await client.set_acl(path, client.acl_of(path) or ())
                changed += 1
            except NoNode:
                continue
    raise No(f"{wrong[0]} is made anew with another ACL all the time; `incumbent init` again")


async def _write_access(client: Client, tree: Tree, access: Access) -> None:
    """In a tree that is not there yet everything in one transaction, so that nobody ever sees
    it open; else first of all, so that agents know what to make from now on."""
    root = [part for part in tree.skeleton() if part[0] not in (tree.root,)]
    below = [part for part in root if part[0].startswith(f"{tree.root}/")]
    above = [part for part in root if part not in below]
    if await client.exists(tree.root) is None:
        for path, data in above:
            if await client.exists(path) is None:
                await client.create(path, data)
        ops = [Create(path, data) for path, data in ((tree.root, b""), *below)]
        await client.multi([*ops, Create(tree.access, write(access))])
        return
    try:
        data, stat = await client.get(tree.access)
    except NoNode:
        await client.create(tree.access, write(access))
        return
    if data != write(access):
        await client.set(tree.access, write(access), stat.version)


async def _make_shared(client: Client, tree: Tree) -> None:
    for name in _SHARED:
        if await client.exists(f"{tree.root}/{name}") is None:
            await client.create(f"{tree.root}/{name}")


async def _look(client: Client, tree: Tree) -> tuple[list[str], list[str]]:
    """Every znode at and below the root, outermost first, and those whose ACL is another one."""
    level, paths, wrong = [tree.root], list[str](), list[str]()
    while level:
        asked = await flight(client, *(GetAcl(path) for path in level))
        listed = await flight(client, *(GetChildren(path) for path in level))
        deeper: list[str] = []
        for path, acl, names in zip(level, asked, listed, strict=True):
            for answer in (acl, names):
                if isinstance(answer, BaseException) and not isinstance(answer, NoNode):
                    raise answer
            if isinstance(acl, AclAndStat):
                paths.append(path)
                assert client.acl_of is not None
                if set(acl.acl) != set(client.acl_of(path) or ()):
                    wrong.append(path)
            if isinstance(names, list):
                deeper += [f"{path}/{name}" for name in names]
        level = deeper
    return paths, wrong
