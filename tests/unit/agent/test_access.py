"""Who may do what in the tree: each znode's row, and what counts as open to everybody."""

from __future__ import annotations

import pytest

from incumbent.agent.access import acls, is_open
from incumbent.agent.tree import Access, Tree
from incumbent.wire import OPEN_ACL, Acl

TREE = Tree("/top/incumbent")
ACCESS = Access(operators=["digest:ops:aaa="], agents=["x509:CN=n1,O=x:y"])
LETTERS = {1: "r", 2: "w", 4: "c", 8: "d", 16: "a"}


def letters(acl: Acl) -> str:
    return "".join(letter for bit, letter in LETTERS.items() if acl.perms & bit)


def of(path: str, access: Access = ACCESS) -> dict[str, str]:
    """Who → letters."""
    acl = acls(access, TREE.root)(path)
    assert acl is not None
    return {f"{entry.scheme}:{entry.id}": letters(entry) for entry in acl}


@pytest.mark.parametrize(
    ("path", "agents"),
    [
        (TREE.root, "r"),
        (TREE.access, "r"),
        (TREE.control, "r"),
        (TREE.sessions, "rc"),
        (TREE.session(7), "r"),
        (TREE.nodes, "rc"),
        (TREE.node("n1"), "rw"),
        (TREE.plan, "rw"),
        (TREE.planner, "rcd"),
        (f"{TREE.planner}/x-0000000001", "rw"),
        (TREE.components, "r"),
        (TREE.component("web"), "rc"),
        (TREE.failures("web"), "rw"),
        (TREE.desired("web"), "r"),
        (TREE.commands("web"), "rd"),
        (f"{TREE.commands('web')}/now", "rw"),
        (TREE.seats("web"), "r"),
        (TREE.seat("web/0"), "rwc"),
        (TREE.election("web/0"), "rcd"),
        (f"{TREE.election('web/0')}/x-0000000001", "rw"),
        (TREE.running("web/0"), "rcd"),
        (TREE.breadcrumb("web/0", 3), "rw"),
        (TREE.observed("web/0"), "rw"),
        (f"{TREE.root}/locks/a/b/c", "rwcd"),
        (f"{TREE.root}/something/new", "r"),
    ],
)
def test_operators_may_everything_agents_their_row_and_nobody_else_anything(
    path: str, agents: str
) -> None:
    assert of(path) == {"digest:ops:aaa=": "rwcda", "x509:CN=n1,O=x:y": agents}


def test_no_agent_may_write_an_order_or_delete_what_operators_made() -> None:
    everything = [path for path, _ in TREE.skeleton() if path.startswith(TREE.root)]
    everything += [path for path, _ in TREE.component_skeleton("web", 2)]
    orders = (TREE.control, TREE.component("web"), TREE.desired("web"), TREE.access)

    for path in everything:
        parent = path.rpartition("/")[0]
        if path in orders:
            assert not set(of(path)["x509:CN=n1,O=x:y"]) & set("wda")
        if parent.startswith(TREE.root):
            assert "d" not in of(parent)["x509:CN=n1,O=x:y"], f"{path} could be deleted"


def test_where_everybody_may_read_they_read_all_but_who_is_who() -> None:
    access = Access(operators=["sasl:ops"], agents=["sasl:n1"], readable=True)

    assert of(TREE.component("web"), access)["world:anyone"] == "r"
    assert "world:anyone" not in of(TREE.access, access)
    assert not is_open(acls(access, TREE.root)(TREE.component("web")) or ())


def test_who_is_operator_and_agent_is_operator() -> None:
    access = Access(operators=["sasl:a"], agents=["sasl:a"])

    assert of(TREE.control, access) == {"sasl:a": "rwcda"}


@pytest.mark.parametrize("perms", [2, 4, 8, 16, 31])
def test_what_the_world_may_change_is_open(perms: int) -> None:
    assert is_open([Acl(31, "sasl", "a"), Acl(perms, "world", "anyone")])
    assert is_open(OPEN_ACL)
    assert not is_open([Acl(perms, "sasl", "a"), Acl(1, "world", "anyone")])


def test_beside_the_root_nothing_is_said() -> None:
    acl_of = acls(ACCESS, TREE.root)

    assert [acl_of(path) for path in ("/", "/top", "/top/incumbents", "/x")] == [None] * 4
