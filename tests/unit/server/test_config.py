"""Settings: flags before variables before zoo.cfg, and one sentence for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from incumbent.server.config import Address, BadSettings, Settings, read_settings
from incumbent.server.words import DEFAULT_WORDS, WORDS


def settings(tmp_path: Path, config: str = "", *argv: str, **environ: str) -> Settings:
    """Settings read with --data and, if it says something, a zoo.cfg."""
    arguments = ["--data", str(tmp_path), *argv]
    if config:
        (tmp_path / "zoo.cfg").write_text(config)
        arguments += ["--config", str(tmp_path / "zoo.cfg")]
    return read_settings(arguments, {f"INCUMBENT_SERVER_{k}": v for k, v in environ.items()})


def wrong(tmp_path: Path, config: str = "", *argv: str, **environ: str) -> str:
    with pytest.raises(BadSettings) as caught:
        settings(tmp_path, config, *argv, **environ)
    return str(caught.value)


def test_what_is_said_nowhere(tmp_path: Path) -> None:
    found = settings(tmp_path)

    assert found == Settings(data=tmp_path, listen=Address("127.0.0.1", 2181))
    assert (found.words, found.admin, found.tls_listen) == (DEFAULT_WORDS, None, None)


def test_a_flag_outweighs_a_variable_and_that_the_file(tmp_path: Path) -> None:
    config = "tickTime=1000\nclientPort=1\nclientPortAddress=127.0.0.1\nmaxClientCnxns=1\n"

    found = settings(
        tmp_path, config, "--tick", "3", TICK="2", LISTEN="127.0.0.2:2", MAX_CONNECTIONS=""
    )

    assert found.tick == 3
    assert found.listen == Address("127.0.0.2", 2)
    assert found.connections_per_address == 1


def test_a_data_directory_is_needed_and_may_be_said_anywhere(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="--data DIR"):
        read_settings([], {})

    assert read_settings([], {"INCUMBENT_SERVER_DATA": str(tmp_path)}).data == tmp_path
    (tmp_path / "c").write_text("dataDir=/somewhere\n")
    found = read_settings([], {"INCUMBENT_SERVER_CONFIG": str(tmp_path / "c")})
    assert found.data == Path("/somewhere")


def test_a_zoo_cfg_as_people_have_them(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
# The number of milliseconds of each tick
tickTime=500
initLimit=10
syncLimit = 5
dataLogDir: /log
clientPort=2182
clientPortAddress=0.0.0.0
secureClientPort=2281
ssl.keyStore.location=/s.pem
ssl.keyStore.password=pass
ssl.trustStore.location=/ca.pem
ssl.clientAuth=want
minSessionTimeout=-1
maxSessionTimeout=90000
maxClientCnxns=0
jute.maxbuffer=4194304
4lw.commands.whitelist=stat, \\
  ruok
admin.serverPort=8081
autopurge.purgeInterval=1
extendedTypesEnabled=true
no.such.key=1
""",
    )

    assert found.tick == 0.5
    assert found.data_log == Path("/log")
    assert found.listen == Address("0.0.0.0", 2182)
    assert found.tls_listen == Address("127.0.0.1", 2281)
    assert (found.tls_cert, found.tls_key, found.tls_ca) == (
        *(Path("/s.pem"), Path("/s.pem")),
        Path("/ca.pem"),
    )
    assert (found.tls_password, found.client_auth) == ("pass", "want")
    assert (found.min_timeout, found.max_timeout) == (None, 90.0)
    assert found.connections_per_address == 0
    assert found.frame_bytes == 4 * 1024 * 1024
    assert found.words == {"stat", "ruok"}
    assert found.admin == Address("127.0.0.1", 8081)
    assert found.ttl_znodes
    assert [line.split(": ", 1)[1] for line in found.warnings] == [
        "initLimit has no effect: this server stands alone",
        "syncLimit has no effect: this server stands alone",
        "autopurge.purgeInterval has no effect: there are no snapshots to delete",
        "no.such.key is not a setting of this server and has no effect",
    ]


def test_without_an_address_it_stays_on_this_machine_and_says_so(tmp_path: Path) -> None:
    found = settings(tmp_path, "clientPort=2182\n")

    assert found.listen == Address("127.0.0.1", 2182)
    assert ["clientPortAddress=0.0.0.0" in line for line in found.warnings] == [True]


def test_admin_is_off_unless_asked_for(tmp_path: Path) -> None:
    assert settings(tmp_path, "admin.enableServer=true\n").admin == Address("127.0.0.1", 8080)
    assert settings(tmp_path, "admin.enableServer=false\nadmin.serverPort=1\n").admin is None


def test_what_would_not_be_what_was_meant_is_refused(tmp_path: Path) -> None:
    assert "this server stands alone" in wrong(tmp_path, "server.1=a:1:2\nserver.2=b:1:2\n")
    assert "cannot enforce" in wrong(tmp_path, "sessionRequireClientSASLAuth=true\n")
    line = wrong(tmp_path, "ssl.keyStore.location=/x.jks\n")
    assert "only Java reads" in line
    assert "openssl pkcs12" in line


@pytest.mark.parametrize(
    "config",
    [
        "jute.maxbuffer=7",
        "tickTime=x",
        "clientPort=99999",
        "tickTime=0",
        "4lw.commands.whitelist=nope",
    ],
)
def test_a_value_that_does_not_belong_is_shown(tmp_path: Path, config: str) -> None:
    line = wrong(tmp_path, config)

    assert line.startswith(f"{tmp_path / 'zoo.cfg'}: {config.partition('=')[0]}=")


def test_where_a_wrong_value_was_said(tmp_path: Path) -> None:
    assert wrong(tmp_path, TICK="x").startswith("INCUMBENT_SERVER_TICK: 'x' is not a number")
    assert wrong(tmp_path, "", "--words", "srvr,abcd").startswith(
        "--words: 'srvr,abcd' names abcd;"
    )
    assert wrong(tmp_path, "", "--log-format", "xml").startswith(
        "--log-format: 'xml' is not one of"
    )
    assert "--max-session-timeout" in wrong(tmp_path, "", "--min-session-timeout", "60")


def test_all_words(tmp_path: Path) -> None:
    assert settings(tmp_path, "", "--words", "*").words == {word.decode() for word in WORDS}
    assert settings(tmp_path, "", "--words", " mntr , srvr ").words == {"mntr", "srvr"}


def test_one_port_speaks_tls_when_there_is_a_certificate(tmp_path: Path) -> None:
    found = settings(tmp_path, "", "--tls-cert", "c.pem", "--listen", "127.0.0.1:7")

    assert (found.listen, found.tls_listen) == (None, Address("127.0.0.1", 7))
    assert found.tls_key == Path("c.pem")
    assert found.client_auth == "none"
    assert settings(tmp_path, "", "--tls-cert", "c", "--tls-ca", "a").client_auth == "need"


def test_a_server_that_asks_for_no_certificates_says_so(tmp_path: Path) -> None:
    (line,) = settings(tmp_path, "secureClientPort=7\nssl.keyStore.location=/s.pem\n").warnings

    assert "no ssl.trustStore.location" in line


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    config = "ssl.keyStore.location=/s.pem\nssl.keyStore.password=pssst\n"

    assert "pssst" not in repr(settings(tmp_path, config, "--super-digest", "super:pssst"))
