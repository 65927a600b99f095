"""A `zoo.cfg` as this server's settings.

Rule of this file: a key that this server does not know, or knows and cannot follow, is one
warning. Two kinds are refused instead, since to go on would not be what was meant: an ensemble's
members, and key stores that only Java reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from incumbent.server.config import Address, BadSettings, read_size, read_words

__all__ = ["read_zoo_cfg"]


def read_zoo_cfg(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Fields of `Settings`, and warnings. Raises `BadSettings`."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSettings(f"cannot read {path}: {why}; see --config") from None
    return _Reading(path, _pairs(text)).settings()


def _pairs(text: str) -> dict[str, str]:
    """As Java reads properties: `key=value`, `key: value`, `key value`, comments, \\ at the end."""
    pairs: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        at = min((at for at in map(line.find, "=: \t") if at >= 0), default=len(line))
        key, rest = line[:at], line[at:].lstrip()
        pairs[key] = rest[1:].lstrip() if rest[:1] in ("=", ":") else rest
    return pairs


class _Reading:
    """One file; each key that is used is taken out of `left`."""

    def __init__(self, path: Path, pairs: dict[str, str]) -> None:
        self.path = path
        self.left = pairs
        self.values: dict[str, Any] = {}
        self.warnings: list[str] = []

    def settings(self) -> tuple[dict[str, Any], list[str]]:
        self._refuse_ensembles()
        self._refuse_unenforceable()
        for key, field, read in _PLAIN:
            self._take(key, field, read)
        if self.values.get("data_log") == self.values.get("data"):
            self.values.pop("data_log", None)
        self._addresses()
        self._tls()
        self._admin()
        for key in self.left:
            reason = next((why for start, why in _REASONS if key.startswith(start)), _UNKNOWN)
            self._warn(f"{key} {reason}")
        return self.values, self.warnings

    def _take(self, key: str, field: str, read: Callable[[str], Any]) -> Any:
        text = self.left.pop(key, "")
        if text == "":
            return None
        try:
            value = read(text)
        except ValueError as error:
            why = str(error) if read in (read_words, read_size) else "is not what belongs there"
            raise BadSettings(f"{self.path}: {key}={text!r} {why}") from None
        if field and value is not None:
            self.values[field] = value
        return value

    def _warn(self, what: str) -> None:
        self.warnings.append(f"{self.path}: {what}")

    def _refuse_ensembles(self) -> None:
        members = [key for key in self.left if key.startswith("server.")]
        if len(members) > 1:
            raise BadSettings(
                f"{self.path}: {', '.join(members)} make an ensemble; this server stands alone "
                "and joins none: run Apache ZooKeeper for that, or remove these lines"
            )

    def _refuse_unenforceable(self) -> None:
        for key in _GUARDS:
            if self.left.get(key, "").lower() not in ("", "false"):
                raise BadSettings(
                    f"{self.path}: {key} lets nobody in without credentials, and this server "
                    "cannot enforce that; remove the line to serve without it, or ask for "
                    "certificates with ssl.trustStore.location"
                )

    def _addresses(self) -> None:
        port = self._take("clientPort", "", _port)
        host = self.left.pop("clientPortAddress", "")
        if port is not None:
            if not host:
                self._warn(
                    "no clientPortAddress: listening on 127.0.0.1 only, unlike Apache ZooKeeper; "
                    "say clientPortAddress=0.0.0.0 for all addresses"
                )
            self.values["listen"] = Address(host or "127.0.0.1", port)
        port = self._take("secureClientPort", "", _port)
        host = self.left.pop("secureClientPortAddress", "")
        if port is not None:
            self.values["tls_listen"] = Address(host or "127.0.0.1", port)

    def _tls(self) -> None:
        pem = self._pem("ssl.keyStore")
        if pem is not None:
            self.values["tls_cert"] = self.values["tls_key"] = pem
            self._take("ssl.keyStore.password", "tls_password", str)
        ca = self._pem("ssl.trustStore")
        if ca is not None:
            self.values["tls_ca"] = ca
            self.left.pop("ssl.trustStore.password", None)
        wanted = self.left.pop("ssl.clientAuth", "").lower()
        if wanted in ("need", "want", "none"):
            self.values["client_auth"] = wanted
        elif pem is not None and ca is None:
            self._warn(
                "no ssl.trustStore.location: clients are asked for no certificate, unlike by "
                "Apache ZooKeeper"
            )

    def _pem(self, store: str) -> Path | None:
        location = self.left.pop(f"{store}.location", "")
        kind = self.left.pop(f"{store}.type", "").upper()
        if not location:
            return None
        if kind not in ("", "PEM") or Path(location).suffix.lower() in (".jks", ".p12", ".bcfks"):
            raise BadSettings(
                f"{self.path}: {store}.location={location} is a key store that only Java reads; "
                "make it PEM (keytool -importkeystore to PKCS12, then openssl pkcs12 -nodes)"
            )
        return Path(location)

    def _admin(self) -> None:
        port = self._take("admin.serverPort", "", _port)
        host = self.left.pop("admin.serverAddress", "127.0.0.1")
        enabled = self.left.pop("admin.enableServer", "").lower()
        if enabled == "true" or (port is not None and enabled != "false"):
            self.values["admin"] = Address(host, 8080 if port is None else port)


def _port(text: str) -> int | None:
    port = int(text)
    if not -1 <= port <= 65535:
        raise ValueError
    return None if port < 0 else port


def _seconds(text: str) -> float | None:
    milliseconds = int(text)
    if milliseconds == 0 or milliseconds < -1:
        raise ValueError
    return None if milliseconds < 0 else milliseconds / 1000


def _truth(text: str) -> bool:
    return text.lower() == "true"


_PLAIN: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("dataDir", "data", Path),
    ("dataLogDir", "data_log", Path),
    ("tickTime", "tick", _seconds),
    ("minSessionTimeout", "min_timeout", _seconds),
    ("maxSessionTimeout", "max_timeout", _seconds),
    ("maxClientCnxns", "connections_per_address", int),
    ("jute.maxbuffer", "frame_bytes", read_size),
    ("4lw.commands.whitelist", "words", read_words),
    ("extendedTypesEnabled", "ttl_znodes", _truth),
    ("DigestAuthenticationProvider.superDigest", "super_digest", str),
)

_GUARDS = (
    "sessionRequireClientSASLAuth",
    "enforce.auth.enabled",
    "requireClientAuthScheme",
)
"""Without these, a server admits clients that its operator thought were shut out."""

_UNKNOWN = "is not a setting of this server and has no effect"
_REASONS = (
    ("server.", "has no effect: this server stands alone"),
    ("initLimit", "has no effect: this server stands alone"),
    ("syncLimit", "has no effect: this server stands alone"),
    ("autopurge.", "has no effect: there are no snapshots to delete"),
    ("snapCount", "has no effect: there are no snapshots"),
    ("metricsProvider.", "has no effect: metrics are at /metrics of the admin server"),
)
