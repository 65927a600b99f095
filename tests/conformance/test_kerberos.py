"""SASL GSSAPI on Apache ZooKeeper, with a KDC of our own: who one is, and who is refused."""

from __future__ import annotations

import socket
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache import ApacheServer
from tests.kerberos import Realm, kerberos_missing, python_with_gssapi

SOURCE = Path(__file__).parents[2] / "src"

JAAS = """\
Server {{
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true storeKey=true useTicketCache=false
  keyTab="{keytab}"
  principal="zookeeper/localhost@INCUMBENT.TEST";
}};
"""

pytestmark = [
    pytest.mark.apache,
    pytest.mark.skipif(bool(kerberos_missing()), reason=kerberos_missing() or ""),
]


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("realm") / "it") as realm:
        yield realm


@pytest.fixture(scope="module")
def apache(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    folder = tmp_path_factory.mktemp("apache-kerberos")
    (folder / "jaas").write_text(JAAS.format(keytab=realm.keytab("zookeeper/localhost")))
    properties = {
        "java.security.auth.login.config": str(folder / "jaas"),
        "java.security.krb5.conf": str(realm.krb5_conf),
        "zookeeper.authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    with ApacheServer(folder / "apache", properties=properties) as server:
        yield server


@pytest.fixture(scope="module")
def alice(realm: Realm) -> Path:
    return realm.keytab("alice")


def says(realm: Realm, program: str, **environ: str) -> str:
    """What this client prints, in a Python that has gssapi."""
    done = subprocess.run(
        [python_with_gssapi(), "-c", textwrap.dedent(program)],
        env={**realm.environ, "PYTHONPATH": str(SOURCE), **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_apache_knows_a_kerberos_user_on_every_connection(
    realm: Realm, apache: ApacheServer, alice: Path
) -> None:
    program = f"""
        import asyncio
        from incumbent import aio
        from incumbent.wire import Acl

        async def main():
            async with aio.connect(
                "localhost:{apache.port}", auth=[("gssapi", b"")], session_timeout=8, timeout=20
            ) as zk:
                print([each.id for each in await zk.who_am_i() if each.scheme == "sasl"])
                await zk.create("/hers", b"1", acl=[Acl(31, "sasl", "alice@INCUMBENT.TEST")])
                zk.client._connection._transport.abort()
                print(await zk.client.submit(GetData("/hers")) and "again")
            async with aio.connect("localhost:{apache.port}", auth=[("gssapi", b"alice")]) as zk:
                await zk.delete("/hers")
            print("closed")

        from incumbent.wire import GetData
        asyncio.run(main())
    """

    said = says(realm, program, KRB5_CLIENT_KTNAME=f"FILE:{alice}")

    assert said.splitlines() == ["['alice@INCUMBENT.TEST']", "again", "closed"]


REFUSED = """
    import incumbent
    from incumbent.errors import AuthFailed

    try:
        incumbent.connect("{host}:{port}", auth=[("gssapi", b"{principal}")], timeout=20)
    except AuthFailed as error:
        print(error)
"""


def test_who_has_no_ticket_is_told_so(realm: Realm, apache: ApacheServer) -> None:
    program = REFUSED.format(host="localhost", port=apache.port, principal="")

    said = says(
        realm,
        program,
        KRB5CCNAME=f"FILE:{realm.folder}/none",
        KRB5_CLIENT_KTNAME=f"FILE:{realm.folder}/none",
    )

    assert "Kerberos, for zookeeper/localhost" in said
    assert "No Kerberos credentials available" in said


def test_a_server_that_is_another_service_is_not_believed(
    realm: Realm, apache: ApacheServer, alice: Path
) -> None:
    """The KDC knows no zookeeper/127.0.0.1."""
    program = REFUSED.format(host="127.0.0.1", port=apache.port, principal="")

    said = says(realm, program, KRB5_CLIENT_KTNAME=f"FILE:{alice}")

    assert "zookeeper/127.0.0.1" in said
    assert "not found in Kerberos database" in said


def test_a_kdc_that_is_silent_holds_up_neither_the_loop_nor_the_end(
    realm: Realm, apache: ApacheServer, alice: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        conf = realm.folder / "silent.conf"
        port = silent.getsockname()[1]
        conf.write_text(realm.krb5_conf.read_text().replace(f":{realm.port}", f":{port}"))
        program = f"""
            import asyncio
            from incumbent import aio
            from incumbent.errors import ConnectTimeout

            async def main():
                turns = 0
                connecting = asyncio.ensure_future(vainly())
                while not connecting.done():
                    turns += 1
                    await asyncio.sleep(0.05)
                print(await connecting, turns > 3)

            async def vainly():
                try:
                    await aio.connect(
                        "localhost:{apache.port}", auth=[("gssapi", b"")], timeout=1
                    )
                except ConnectTimeout:
                    return "in vain"

            asyncio.run(main())
        """

        said = says(
            realm,
            program,
            KRB5_CONFIG=str(conf),
            KRB5CCNAME=f"FILE:{realm.folder}/none",
            KRB5_CLIENT_KTNAME=f"FILE:{alice}",
        )

    assert said == "in vain True"
