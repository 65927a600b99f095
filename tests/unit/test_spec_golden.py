"""Wrong component files and what is said about them, word by word.

Each tests/golden/NAME.toml has its message in NAME.txt. After a change on purpose:
`RENEW_GOLDEN=1 make test PART=unit`, then read the diff.
"""

import os
from pathlib import Path

import pytest

from incumbent.errors import SpecErrors
from incumbent.spec import parse_specs

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(GOLDEN.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_wrong_file_says_where_and_what_was_expected(file: Path) -> None:
    message = file.with_suffix(".txt")

    with pytest.raises(SpecErrors) as caught:
        parse_specs(file.read_bytes(), file.name)

    if os.environ.get("RENEW_GOLDEN"):
        message.write_text(f"{caught.value}\n")
    assert f"{caught.value}\n" == message.read_text()


def test_there_are_at_least_forty_wrong_files() -> None:
    assert len(FILES) >= 40
