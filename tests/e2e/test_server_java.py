"""Apache's Java client over TLS and with SASL: it is told the same names by our server and Apache's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.apache import ApacheServer, apache_missing, free_port
from tests.e2e.served import Served, certificates

JARS = Path("/usr/share/java")
NAMES = ("zookeeper", "slf4j-api", "slf4j-nop", "commons-cli")
NETTY = ("common", "buffer", "codec", "handler", "resolver", "transport")
SUBJECT = (
    "/C=DE/ST=Hesse/L=Gie\u00dfen/O=Example, Inc.+OU=a=b/emailAddress=a@b.de/DC=x/UID=7/CN= web"
)

JAAS = """\
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="alice" password="wonder";
};
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_alice="wonder";
};
"""

pytestmark = pytest.mark.apache

needs_netty = pytest.mark.skipif(
    apache_missing() is not None or not (JARS / "netty-handler.jar").exists(),
    reason="no /usr/share/java/netty-handler.jar (apt-get install libnetty-java)",
)


def say(port: int, script: str, *properties: str) -> list[str]:
    """What zkCli prints for the script, without its prompts."""
    names = (*NAMES, *(f"netty-{part}" for part in NETTY))
    classpath = ":".join(str(JARS / f"{name}.jar") for name in names)
    done = subprocess.run(
        [
            *("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"),
            *("-Dsun.stdout.encoding=UTF-8", "-Dstdout.encoding=UTF-8"),
            *(*properties, "-cp", classpath, "org.apache.zookeeper.ZooKeeperMain"),
            *("-server", f"127.0.0.1:{port}"),
        ],
        input=script + "quit\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [line for line in done.stdout.splitlines() if ":" in line or "=" in line]


SCRIPT = "whoami\ncreate /mine x auth::cdrwa\ngetAcl /mine\nget /mine\n"


def about_me(lines: list[str]) -> list[str]:
    """Lines with ids, which come in no order."""
    return sorted(line for line in lines if any(s in line for s in ("x509", "sasl", "'", "ip:")))


@needs_netty
def test_a_certificates_name_is_the_same_on_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates(tmp_path, SUBJECT)
    jars = ":".join(str(JARS / f"netty-{part}.jar") for part in NETTY)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xbootclasspath/a:{jars}")
    port = free_port()
    theirs = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(tmp_path / "server.pem"),
        "ssl.trustStore.location": str(tmp_path / "ca.pem"),
    }
    settings = {"secureClientPort": port, "secureClientPortAddress": "127.0.0.1"}
    client = (
        "-Dzookeeper.client.secure=true",
        "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
        f"-Dzookeeper.ssl.keyStore.location={tmp_path / 'client.pem'}",
        f"-Dzookeeper.ssl.trustStore.location={tmp_path / 'ca.pem'}",
    )
    with ApacheServer(
        tmp_path / "apache",
        settings=settings,
        properties={f"zookeeper.{key}": value for key, value in theirs.items()},
    ):
        expected = about_me(say(port, SCRIPT, *client))
    tls = ("--tls-cert", tmp_path / "server.pem", "--tls-ca", tmp_path / "ca.pem")
    with Served(tmp_path, *tls) as ours:
        got = about_me(say(ours.port, SCRIPT, *client))

    assert any("x509" in line for line in expected), expected
    assert got == expected


def test_a_users_name_is_the_same_on_both(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text(JAAS)
    jaas = str(tmp_path / "jaas")
    theirs = {
        "java.security.auth.login.config": jaas,
        "zookeeper.authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    (tmp_path / "users").write_text("alice:wonder\n")
    (tmp_path / "users").chmod(0o600)
    client = f"-Djava.security.auth.login.config={jaas}"

    with ApacheServer(tmp_path / "apache", properties=theirs) as apache:
        expected = about_me(say(apache.port, SCRIPT, client))
    with Served(tmp_path, "--sasl-users", tmp_path / "users") as ours:
        got = about_me(say(ours.port, SCRIPT, client))

    assert any("sasl" in line for line in expected), expected
    assert got == expected
