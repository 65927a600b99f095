"""Both servers, and the same script on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """One embedded server for the whole run; a test makes its own root znode."""
    with EmbeddedServer(tmp_path_factory.mktemp("embedded")) as server:
        yield server
