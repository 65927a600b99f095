"""Every public module says exactly what it offers."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if not path.name.startswith("_") or path.name == "__init__.py"
]


def source(module: str) -> ast.Module:
    return ast.parse((SOURCE / (module.replace(".", "/") + ".py")).read_text())


def exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        target = None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        if isinstance(target, ast.Name) and target.id == "__all__":
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return None


def offered(tree: ast.Module) -> Iterator[str]:
    """Public classes and functions. One with a decorator of another object's (a command of a
    typer app) is offered through that; a constant may be a matter between neighbours.
    """
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            foreign = any(
                isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
                for each in node.decorator_list
            )
            if not node.name.startswith("_") and not foreign:
                yield node.name


@pytest.mark.parametrize("module", [m for m in MODULES if not m.endswith("__init__")])
def test_all_is_exactly_what_the_module_defines(module: str) -> None:
    tree = source(module)
    names = exported(tree)

    if names is None:
        assert module.endswith("__main__"), f"{module} has no __all__"
        return
    assert len(names) == len(set(names))
    assert set(names) <= vars(importlib.import_module(module)).keys()
    assert set(offered(tree)) <= set(names)


@pytest.mark.parametrize("module", [m for m in MODULES if m.endswith("__init__")])
def test_a_package_exports_what_it_says(module: str) -> None:
    package = importlib.import_module(module.removesuffix(".__init__"))
    if all(isinstance(node, ast.Expr) for node in source(module).body):
        return  # a docstring alone: nothing is offered here

    assert exported(source(module)) is not None, f"{module} has no __all__"
    for name in package.__all__:
        assert hasattr(package, name)
