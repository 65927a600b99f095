"""What we show to a server, and whom we take for one: a credentials file, and TLS.

A credentials file has a line SCHEME:CREDENTIAL for each thing to show, as `digest:name:password`
or `sasl:name:password`; only its owner may read it.

Rule of this file: a secret comes from a file that nobody else can read, never from a command
line or a variable, and no message has it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incumbent.errors import SpecError, SpecErrors

if TYPE_CHECKING:
    import ssl

__all__ = ["Credentials", "digest_id", "read_auth", "tls_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How to come in.

    auth                   (scheme, credential) pairs, as a client's `auth=`
    tls_ca, _cert, _key    PEM files; any of them means TLS
    insecure               a digest may go in clear text beyond this machine; an agent takes
                           orders from a tree that anybody may write
    """

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False

    @property
    def has_tls(self) -> bool:
        return (self.tls_ca or self.tls_cert or self.tls_key) is not None

    @property
    def shown(self) -> str:
        """For a sentence: names, no secrets."""
        names = [f"{scheme}:{text.partition(b':')[0].decode()}" for scheme, text in self.auth]
        if self.tls_cert is not None:
            names.append(f"the certificate {self.tls_cert}")
        return ", ".join(names) or "no credential"

    def tls(self) -> ssl.SSLContext | None:
        """None: clear text. Raises `SpecErrors` for a file that cannot be used."""
        if not self.has_tls:
            return None
        try:
            return tls_context(ca=self.tls_ca, certificate=self.tls_cert, key=self.tls_key)
        except (OSError, ValueError) as error:
            files = ", ".join(each for each in (self.tls_ca, self.tls_cert, self.tls_key) if each)
            why = (
                f"cannot be used for TLS: {(getattr(error, 'strerror', '') or str(error)).lower()}"
            )
            text = f"{why}; expected PEM files: see tls_ca, tls_cert and tls_key"
            raise SpecErrors([SpecError(files, 0, "", text)]) from None

    def for_client(self) -> dict[str, Any]:
        """What a client takes: auth, tls, insecure. Raises `SpecErrors`."""
        return {"auth": self.auth, "tls": self.tls(), "insecure": self.insecure}

    def to_json(self) -> dict[str, Any]:
        """Plain values for a message to another process; secrets as hex."""
        return {
            "auth": [[scheme, credential.hex()] for scheme, credential in self.auth],
            "tls_ca": self.tls_ca,
            "tls_cert": self.tls_cert,
            "tls_key": self.tls_key,
            "insecure": self.insecure,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Credentials:
        """The inverse of `to_json`."""
        auth = tuple((str(scheme), bytes.fromhex(hexed)) for scheme, hexed in values["auth"])
        return cls(**{**values, "auth": auth})


def read_auth(file: Path) -> tuple[tuple[str, bytes], ...]:
    """The credentials in a file. Raises `SpecErrors`: for one that others can read, too."""
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            lines = opened.read().splitlines()
    except OSError as error:
        raise _wrong(file, 0, (error.strerror or str(error)).lower()) from None
    if mode & 0o077:
        raise _wrong(file, 0, f"others can read or change it: chmod 600 {file}")
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        scheme, colon, credential = text.partition(b":")
        if not (scheme.isalnum() and colon and credential):
            what = "expected SCHEME:CREDENTIAL, as in digest:name:password"
            raise _wrong(file, number, what)
        found.append((scheme.decode(), credential))
    return tuple(found)


def digest_id(credential: bytes) -> str:
    """What an ACL names a `name:password` of the scheme digest by."""
    digest = hashlib.sha1(credential, usedforsecurity=False).digest()
    return f"{credential.partition(b':')[0].decode()}:{base64.b64encode(digest).decode()}"


def tls_context(
    *,
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    password: str | None = None,
) -> ssl.SSLContext:
    """See `incumbent.client.tls.context`."""
    import ssl  # not before it is needed: who speaks clear text starts faster

    made = ssl.create_default_context(cafile=None if ca is None else str(ca))
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        made.load_cert_chain(str(certificate), None if key is None else str(key), password)
    return made


def _wrong(file: Path, line: int, text: str) -> SpecErrors:
    return SpecErrors([SpecError(str(file), line, "", text)])
