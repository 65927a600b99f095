"""What a node allows: by the user and by the path at which a program is found."""

from __future__ import annotations

import pytest

from incumbent.allowances import EVERYTHING, Allowances

NODE = Allowances(
    users=("web",), commands=("/usr/bin/redis-server", "/srv/app/bin/*"), source="/etc/x"
)


@pytest.mark.parametrize("path", ["/usr/bin/redis-server", "/srv/app/bin/web"])
def test_what_is_named_may_run(path: str) -> None:
    assert NODE.why_not_program(path, {"PORT": "80"}) == ""
    assert EVERYTHING.why_not_program("/bin/anything", {"LD_PRELOAD": "x"}) == ""


@pytest.mark.parametrize(
    "path",
    [
        *("/usr/bin/redis-cli", "/bin/sh", "/srv/app/bin/sub/web", "/srv/app/bin", "redis-server"),
        *("/srv/app/bin/../../../bin/sh", "/srv/app/bin/..", "/x/usr/bin/redis-server"),
    ],
)
def test_nothing_else_may(path: str) -> None:
    assert NODE.why_not_program(path, {}) == (
        f"this node does not run {path} (allow_commands in /etc/x)"
    )


@pytest.mark.parametrize(
    "name",
    str.split(
        "LD_PRELOAD PATH BASH_ENV ENV ZDOTDIR PYTHONPATH PERL5LIB PERLLIB NODE_OPTIONS NODE_PATH "
        "OPENSSL_CONF JDK_JAVA_OPTIONS _JAVA_OPTIONS CLASSPATH LUA_INIT PHPRC DOTNET_STARTUP_HOOKS"
    ),
)
def test_nor_may_the_tree_have_something_else_run_by_it(name: str) -> None:
    why = NODE.why_not_program("/srv/app/bin/web", {"PORT": "80", name: "/tmp/evil"})

    assert why.startswith(f"{name} is set for it, by which it could run anything")


def test_users_go_by_name() -> None:
    assert NODE.why_not_user("web") == EVERYTHING.why_not_user("root") == ""
    assert NODE.why_not_user("root") == "this node runs nothing as root (allow_users in /etc/x)"


def test_an_empty_list_allows_nothing() -> None:
    nothing = Allowances(users=(), commands=())

    assert nothing.why_not_user("web") and nothing.why_not_program("/bin/true", {})
    assert Allowances.from_json(nothing.to_json()) == nothing
    assert Allowances.from_json(EVERYTHING.to_json()) == EVERYTHING
