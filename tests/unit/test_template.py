"""A template is made into a file with every value, or is an error that names what has none."""

from __future__ import annotations

import pytest

from incumbent.errors import SpecErrors
from incumbent.spec.template import render

VALUES = {"LEVEL": "debug", "PORT": "80", "ODD": "${PORT}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("level = ${LEVEL}\nport=${PORT};", "level = debug\nport=80;"),
        ("proxy_set_header Host $host;", "proxy_set_header Host $host;"),
        ("$${LEVEL} $$ $5", "${LEVEL} $$ $5"),
        ("${ODD}", "${PORT}"),
    ],
    ids=["values", "other dollars", "as it stands", "a value is not looked into"],
)
def test_names_in_braces_have_their_values(text: str, expected: str) -> None:
    assert render(text, VALUES, "web.conf.in") == expected


def test_what_has_no_value_is_named_with_its_line_and_no_value_is() -> None:
    with pytest.raises(SpecErrors) as caught:
        render("a ${LEVEL}\n${LEVLE} ${OTHER}\n${ 5}", VALUES, "web.conf.in")

    assert str(caught.value).splitlines() == [
        "web.conf.in:2: LEVLE: it has no value; did you mean `LEVEL`?",
        "web.conf.in:2: OTHER: it has no value; `config` or `env` may set it",
        "web.conf.in:3: `${` begins no name: expected `${NAME}`, or `$${` for what is to stay",
    ]
