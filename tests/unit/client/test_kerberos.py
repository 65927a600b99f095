"""SASL GSSAPI where there is no Kerberos; with one it is in tests/conformance/test_kerberos.py."""

from __future__ import annotations

import sys

import pytest
from tests.unit.client.scripted import scripted

from incumbent.client import Client
from incumbent.client.kerberos import no_layer
from incumbent.errors import AuthFailed
from incumbent.wire.sasl import SaslFailed


def test_no_layer_is_agreed_on_and_nothing_else() -> None:
    assert no_layer(b"\x07\x00\x40\x00") == no_layer(b"\x01\x00\x00\x00") == b"\x01\x00\x00\x00"
    with pytest.raises(SaslFailed, match="use TLS"):
        no_layer(b"\x06\x00\x40\x00")
    with pytest.raises(SaslFailed, match="instead of 4"):
        no_layer(b"\x01")


async def test_without_the_package_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    async with scripted() as server:
        with pytest.raises(AuthFailed, match=r"pip install 'incumbent\[gssapi\]'"):
            await Client(server.hosts, auth=[("gssapi", b"")]).connect(2)
