"""Whether a node shows its programs' logs to other machines, where, and to whom.

    [logs]
    listen = "10.0.0.1:7281"
    tls_cert = "/etc/incumbent/n1.pem"
    tls_ca = "/etc/incumbent/ca.pem"
    readers = ["operators", "x509:CN=ops,O=Example"]

in `/etc/incumbent/agent.toml`, and nowhere else; without it nobody is shown anything.

Rule of this file: it decides, and opens nothing but certificates. Nothing is served in clear text beyond this machine, unless somebody has
said `insecure`, and nothing to who is not named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

__all__ = ["ANYBODY", "KEYS", "OPERATORS", "LogService", "is_loopback", "split_address"]

OPERATORS = "operators"
"""As a reader: those of the tree (`incumbent init`)."""
ANYBODY = "anybody"
"""As a reader; only with `insecure`."""
KEYS = ("listen", "address", "tls_cert", "tls_key", "tls_ca", "readers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogService:
    """Paths are absolute. `address`: where others find it, if not at `listen`."""

    listen: str
    address: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    """Who signed the certificates of readers."""
    readers: Sequence[str] = (OPERATORS,)
    """OPERATORS, ANYBODY, or ids as ACLs have them, of the schemes digest and x509."""

    @property
    def url(self) -> str:
        """What other machines are told: tls://HOST:PORT or tcp://HOST:PORT."""
        return f"{'tls' if self.tls_cert else 'tcp'}://{self.address or self.listen}"

    def tls(self) -> ssl.SSLContext | None:
        """None: clear text. Raises `certificates.TlsRefused`."""
        if not self.tls_cert:
            return None
        from incumbent.certificates import server_context  # who serves nothing does without ssl

        return server_context(
            Path(self.tls_cert),
            Path(self.tls_key or self.tls_cert),
            ca=Path(self.tls_ca) if self.tls_ca else None,
            client_auth="want" if self.tls_ca else "none",
            settings=("tls_cert", "tls_key", "tls_ca"),
        )

    def problem(self, *, is_insecure: bool) -> tuple[str, str] | None:
        """(the key, what is wrong with it), or None."""
        for key in ("listen", "address"):
            text = getattr(self, key)
            if (text or key == "listen") and split_address(text) is None:
                return key, f'expected "HOST:PORT", like "10.0.0.1:7281"; got {text!r}'
        host = (split_address(self.listen) or ("", 0))[0]
        if host in ("0.0.0.0", "::") and not self.address:
            return "listen", (
                f"{self.listen} is every address of this machine, and none that others could go "
                'to: say which with `address = "HOST:PORT"`'
            )
        if not self.tls_cert and (self.tls_key or self.tls_ca):
            return "tls_cert", "expected this node's certificate, PEM, since others are told of TLS"
        if not self.tls_cert and not is_loopback(host) and not is_insecure:
            return "listen", (
                "logs would leave this machine in clear text: name this node's certificate with "
                "`tls_cert`, listen on 127.0.0.1, or accept it with `insecure` in [incumbent]"
            )
        for reader in self.readers:
            scheme, _, name = reader.partition(":")
            if reader == ANYBODY and not is_insecure:
                return "readers", f'"{ANYBODY}" may read only where [incumbent] says `insecure`'
            if reader not in (OPERATORS, ANYBODY) and not (scheme in ("digest", "x509") and name):
                return "readers", (
                    f'expected "{OPERATORS}", or ids as ACLs have them: "digest:NAME:HASH", '
                    f'"x509:CN=ops,O=Example"; got {reader!r}'
                )
            if scheme == "x509" and not self.tls_ca:
                return "readers", (
                    f"{reader} shows a certificate: say with `tls_ca` who signs those of readers"
                )
        return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LogService:
        return cls(**values)


def split_address(text: str) -> tuple[str, int] | None:
    """HOST:PORT, [HOST]:PORT; None if it is none, or names no port."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]+)):(\d{1,5})", text)
    if match is None or not 0 < int(match[3]) < 65536:
        return None
    return match[1] or match[2], int(match[3])


def is_loopback(host: str) -> bool:
    """By its address; of names only localhost."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
