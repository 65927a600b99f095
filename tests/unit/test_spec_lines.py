"""The line of every key of a TOML file, against files made by hand and by chance."""

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from incumbent.toml_file import KeyPath, parse_toml

EVERY_FORM = '''\
# a comment with [brackets] and "quotes"
top = 1                                     # line 2
"quo.ted".'li t' = """
  [not.a.table]
  x = 1 ""\\" """                           # the string begins in line 3
nested = [ [1, 2],
  { a = "}", b = [
    "]", # "comment"
    \'\'\'
]\'\'\'] },
]

[a]
x = 2024-01-01 10:00:00
y.z = 0x1F
[ a . "b c" ]
[[list]]
x = 1
[list.sub]
y = 2
[[list]]
[[list.inner]]
k = "#"
'''


def test_every_form_of_toml_is_located() -> None:
    file = parse_toml(EVERY_FORM.encode(), "x.toml")

    for path, line in {
        ("top",): 2,
        ("quo.ted",): 3,
        ("quo.ted", "li t"): 3,
        ("nested",): 6,
        ("nested", 0): 6,
        ("nested", 1): 7,
        ("nested", 1, "b"): 7,
        ("nested", 1, "b", 0): 8,
        ("nested", 1, "b", 1): 9,
        ("a",): 13,
        ("a", "x"): 14,
        ("a", "y", "z"): 15,
        ("a", "b c"): 16,
        ("list", 0): 17,
        ("list", 0, "sub"): 19,
        ("list", 0, "sub", "y"): 20,
        ("list", 1): 21,
        ("list", 1, "inner", 0): 22,
        ("list", 1, "inner", 0, "k"): 23,
    }.items():
        assert file.lines[path] == line, path


def test_a_key_that_is_absent_has_the_line_of_the_table_that_lacks_it() -> None:
    file = parse_toml(b"\n[a.b]\nc = 1\n", "x.toml")

    assert str(file.problem(("a", "b", "d"), "missing")) == "x.toml:2: a.b.d: missing"
    assert str(file.problem(("z",), "missing")) == "x.toml: z: missing"


KEYS = st.text(st.sampled_from("ab.-_ #\"'[]{}=,\\é\n"), max_size=4)
SCALARS = st.one_of(
    st.integers(-9, 9), st.booleans(), st.text(st.sampled_from("ab\"'#[]{},=\\ \n"), max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.randoms(use_true_random=False))
def test_each_key_of_any_file_is_found_on_the_line_where_it_was_written(
    data: dict[str, Any], rng: Any
) -> None:
    text, expected = written(data, rng)
    assert tomllib.loads(text) == data  # what was written is what was meant

    file = parse_toml(text.encode(), "x.toml")

    assert dict(file.lines) == expected


def written(data: dict[str, Any], rng: Any) -> tuple[str, dict[KeyPath, int]]:
    """TOML for `data`, with line breaks and comments where they may be, and each key's line."""
    out: list[str] = []
    lines: dict[KeyPath, int] = {}

    def line() -> int:
        return "".join(out).count("\n") + 1

    def quoted(text: str) -> str:
        if "'" not in text and "\n" not in text and rng.random() < 0.3:
            return f"'{text}'"
        return json.dumps(text)

    def blank() -> None:
        out.append(rng.choice(["", " ", "\n", " # [x] = 'y'\n"]))

    def value(path: KeyPath, item: Any) -> None:
        if isinstance(item, dict):
            out.append("{")
            for position, (key, inner) in enumerate(item.items()):
                out.append(", " if position else " ")
                pair((*path, key), inner)
            out.append(" }")
        elif isinstance(item, list):
            out.append("[")
            for position, inner in enumerate(item):
                blank()
                lines[(*path, position)] = line()
                value((*path, position), inner)
                out.append(",")
                blank()
            out.append("]")
        elif isinstance(item, str):
            long = rng.random() < 0.3 and not set(item) & set("\\'") and item[:1] != "\n"
            out.append(f"'''{item}'''" if long else quoted(item))
        else:
            out.append(str(item).lower())

    def pair(path: KeyPath, item: Any) -> None:
        lines[path] = line()
        out.append(f"{quoted(str(path[-1]))} = ")
        value(path, item)

    def tables(path: KeyPath, table: dict[str, Any]) -> None:
        later = {k: v for k, v in table.items() if isinstance(v, dict) and rng.random() < 0.5}
        for key, item in table.items():
            if key not in later:
                blank()
                pair((*path, key), item)
                out.append("\n")
        for key, item in later.items():
            here = (*path, key)
            blank()
            out.append("\n")
            lines[here] = line()
            out.append("[" + " . ".join(quoted(str(part)) for part in here) + "] # ]\n")
            tables(here, item)

    tables((), data)
    return "".join(out), lines
