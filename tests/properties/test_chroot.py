"""A client's root, for every operation: what it names lies below, and what comes back is as asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.client.chroot import Chroot
from incumbent.errors import BadArguments, NoNode
from incumbent.wire import (
    AddWatch,
    AuthPacket,
    Check,
    CheckWatches,
    CloseSession,
    Create,
    Create2,
    CreateContainer,
    Created,
    CreateTtl,
    Delete,
    EventType,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    KeeperState,
    Multi,
    MultiRead,
    Ping,
    Reconfig,
    RemoveWatches,
    Request,
    Sasl,
    SetAcl,
    SetData,
    SetWatches,
    SetWatches2,
    Stat,
    Sync,
    WatchEvent,
    WhoAmI,
)
from incumbent.wire.decode import _REQUESTS
from incumbent.wire.paths import problem

STAT = Stat(*range(11))

names = st.text("ab/.é", min_size=1, max_size=6)
paths = st.lists(names, max_size=4).map(lambda parts: "/" + "/".join(parts))
roots = st.lists(st.sampled_from(["a", "b", "app"]), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)
operations = st.sampled_from(
    [
        *(Create, Create2, CreateContainer, CreateTtl, Delete, Exists, GetData, GetChildren),
        *(GetChildren2, Check, GetAcl, GetAllChildrenNumber, Sync, AddWatch, CheckWatches),
        *(RemoveWatches, lambda path: SetData(path, b""), lambda path: SetAcl(path, ())),
    ]
)
TESTED_ALONE = {Multi, MultiRead, GetEphemerals}
WITHOUT_A_PATH = {AuthPacket, CloseSession, Ping, Reconfig, Sasl, WhoAmI}
OUR_OWN = {SetWatches, SetWatches2}
"""Made of what was sent before, and so of whole paths."""


@given(root=roots, path=paths)
def test_up_is_the_way_back_from_down(root: str, path: str) -> None:
    chroot = Chroot(root)

    assert chroot.up(chroot.down(path)) == path
    assert (chroot.down(path) + "/").startswith(root + "/")


def test_no_operation_is_forgotten() -> None:
    tested = {type(make("/")) for make in operations.elements}  # type: ignore[attr-defined]

    assert tested | TESTED_ALONE | WITHOUT_A_PATH | OUR_OWN == set(_REQUESTS.values())


@given(root=roots, path=paths, make=operations)
def test_every_operation_names_something_below_the_root(root: str, path: str, make: object) -> None:
    assert callable(make)
    asked = make(path)
    chroot = Chroot(root)

    sent = chroot.request(asked)

    assert type(sent) is type(asked)
    assert sent.where == chroot.down(path)
    refused = chroot.answer(sent, NoNode(sent.where))
    assert refused.path == path
    assert path in str(refused)
    together = chroot.request(Multi((asked, asked)))
    assert [op.path for op in together.ops] == [sent.where] * 2  # type: ignore[attr-defined]


@given(root=roots, path=paths)
def test_answers_and_events_have_the_callers_paths(root: str, path: str) -> None:
    chroot = Chroot(root)
    whole = chroot.down(path)

    assert chroot.answer(Create(whole), whole) == path
    assert chroot.answer(Create2(whole), Created(whole, STAT)) == Created(path, STAT)
    ops = (Create2(whole), SetData(whole, b""), Delete(whole), CreateContainer(whole))
    results = [whole, STAT, None, Created(whole, STAT)]
    assert chroot.answer(Multi(ops), results) == [path, STAT, None, Created(path, STAT)]
    reads = MultiRead((GetData(whole), GetChildren(whole)))
    missing = chroot.answer(reads, [NoNode(whole), ["a"]])
    assert (missing[0].path, missing[1]) == (path, ["a"])
    event = WatchEvent(EventType.CHANGED, KeeperState.CONNECTED, whole)
    assert chroot.event(event).path == path


there_are = paths.filter(lambda path: problem(path) is None)
"""Paths that a server can have."""


@given(root=roots, others=st.lists(there_are, max_size=5), path=there_are)
def test_of_the_ephemerals_only_those_below_are_shown(
    root: str, others: list[str], path: str
) -> None:
    chroot = Chroot(root)
    asked = chroot.request(GetEphemerals("/"))
    there = [chroot.down(path), f"{root}x/a", *others]

    shown = chroot.answer(asked, there)

    assert asked == GetEphemerals(f"{root}/")
    assert all(chroot.down(each) in there for each in shown)
    assert path in shown or path == "/"


@pytest.mark.parametrize("path", ["", "a", "a/b"])
def test_what_is_no_path_is_refused_here(path: str) -> None:
    for request in (GetData(path), Multi((Delete(path),))):
        with pytest.raises(BadArguments):
            Chroot("/app").request(request)


def test_what_has_no_path_stays_as_it_is() -> None:
    request: Request = WhoAmI()
    assert Chroot("/app").request(request) is request
