"""The name in a certificate, as Java writes it. (tests/e2e compares with Java itself.)"""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from incumbent.certificates import subject_name


def der(tmp_path: Path, subject: str) -> bytes:
    pem = tmp_path / "c.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-utf8", "-keyout", "/dev/null"),
            *("-multivalue-rdn", "-out", str(pem), "-subj", subject),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return ssl.PEM_cert_to_DER_cert(pem.read_text())


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/CN=web", "CN=web"),
        ("/C=DE/O=Example, Inc./OU=ops/CN=web", "CN=web,OU=ops,O=Example\\, Inc.,C=DE"),
        ("/O=a+OU=b", "O=a+OU=b"),
        ("/CN=Jörg", "CN=Jörg"),
        ('/CN=#x<y>;\\\\"=', 'CN=\\#x\\<y\\>\\;\\\\\\"\\='),
        ("/CN= web ", "CN=\\ web\\ "),
        ("/DC=org/DC=example/UID=7", "UID=7,DC=example,DC=org"),
        ("/emailAddress=a@b.de", "1.2.840.113549.1.9.1=#16066140622e6465"),
    ],
)
def test_subjects(tmp_path: Path, subject: str, name: str) -> None:
    assert subject_name(der(tmp_path, subject)) == name


def test_a_torn_certificate_has_no_name_and_breaks_nothing(tmp_path: Path) -> None:
    whole = der(tmp_path, "/CN=web")

    for end in range(250):
        with pytest.raises(ValueError):
            subject_name(whole[:end])
