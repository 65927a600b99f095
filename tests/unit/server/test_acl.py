"""Who may do what. What Apache does with all of this is in tests/conformance."""

from __future__ import annotations

import pytest

from incumbent.errors import InvalidACL, NoAuth
from incumbent.server import Policy
from incumbent.server.acl import SUPER, Keeper, permits, require, shown, user_names
from incumbent.wire import OPEN_ACL, Acl, Id

ALICE = Id("digest", "alice:4QVDcLiTw86vLLoFUbTOAeOeWqY=")
HERE = Id("ip", "10.1.2.3")


def test_a_digest_is_what_apache_makes_of_user_and_password() -> None:
    (mine,) = Keeper(Policy()).ids("digest", b"user:password") or []

    assert mine == Id("digest", "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=")


def test_the_super_digest_gives_every_right() -> None:
    keeper = Keeper(Policy(super_digest="user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY="))

    ids = keeper.ids("digest", b"user:password") or []

    assert SUPER in ids
    assert permits((Acl(1, "digest", "nobody:x"),), 16, ids)
    assert keeper.ids("digest", b"user:other") != ids


@pytest.mark.parametrize("scheme", ["super", "x509", "sasl", "world", "nonsense", "", None])
def test_no_other_scheme_is_shown_by_words(scheme: str | None) -> None:
    assert Keeper(Policy(schemes=("x509", "sasl"))).ids(scheme, b"x") is None


@pytest.mark.parametrize(
    ("network", "address", "is_in"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("10.1.2.2/31", "10.1.2.3", True),
        ("0.0.0.0/0", "200.1.2.3", True),
        ("10.1.2.3", "::1", False),
        ("10.1.2.3", "", False),
    ],
)
def test_networks(network: str, address: str, is_in: bool) -> None:
    assert permits((Acl(1, "ip", network),), 1, [Id("ip", address)]) is is_in


def test_a_permission_must_be_in_the_entry_that_matches() -> None:
    acl = (Acl(1, "world", "anyone"), Acl(2, *ALICE), Acl(4, "ip", "10.0.0.0/8"))

    granted = {perm for perm in (1, 2, 4, 8, 16) if permits(acl, perm, [ALICE])}

    assert granted == {1, 2}
    require("/a", acl, 4 | 8, [HERE])
    with pytest.raises(NoAuth):
        require("/a", acl, 8 | 16, [ALICE, HERE])


def test_auth_stands_for_all_that_was_shown_and_addresses_do_not_count() -> None:
    keeper = Keeper(Policy(schemes=("x509",)))
    certified = Id("x509", "CN=me")

    kept = keeper.accept("/a", [Acl(3, "auth", "")], [HERE, ALICE, certified])

    assert kept == (Acl(3, *ALICE), Acl(3, *certified))
    with pytest.raises(InvalidACL):
        keeper.accept("/a", [Acl(3, "auth", "")], [HERE])


def test_the_open_acl_is_kept_once() -> None:
    assert Keeper(Policy()).accept("/a", list(OPEN_ACL), []) is OPEN_ACL


def test_digests_are_shown_to_those_only_who_may_change_the_acl() -> None:
    acl = (Acl(31, *ALICE), Acl(1, "world", "anyone"))

    assert shown(acl, [ALICE]) == list(acl)
    assert shown(acl, [HERE]) == [Acl(31, "digest", "alice:x"), Acl(1, "world", "anyone")]
    assert user_names([HERE, ALICE]) == [HERE, Id("digest", "alice")]
