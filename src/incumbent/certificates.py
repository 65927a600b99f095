"""Certificates of who listens: a context for TLS, and a client's name as Apache writes it.

Rule of this file: a certificate's name is written as Java's `X500Principal.getName()` writes it
(RFC 2253, last part first), since that is what stands in ACLs of the scheme x509.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from incumbent.wire import Id

__all__ = ["TlsRefused", "certified_ids", "server_context", "subject_name"]

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The only ones that RFC 2253 knows; all others are written as numbers."""

_TEXT = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1E: "utf-16-be",
}
"""Kinds of strings in a certificate, with their encodings."""

_ESCAPED = frozenset(',=+<>#;"\\')


class TlsRefused(OSError):
    """A file that TLS needs cannot be used; the sentence says which, and the next step."""


def server_context(
    cert: Path,
    key: Path,
    *,
    ca: Path | None = None,
    client_auth: str = "none",
    password: str | None = None,
    settings: tuple[str, str, str] = ("--tls-cert", "--tls-key", "--tls-ca"),
) -> ssl.SSLContext:
    """A context for a server. Raises `TlsRefused`.

    cert, key    PEM files, may be the same one
    ca           PEM file of who signed the certificates of clients
    client_auth  `need`, `want` or `none`: must clients show a certificate?
    password     of the key, if it has one
    settings     what the files are called where people name them
    """
    the_cert, the_key, the_ca = settings
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (cert, key, *((ca,) if ca else ())):
        try:
            path.open("rb").close()
        except OSError as error:
            raise TlsRefused(
                f"cannot read {path}: {error.strerror}; see {the_cert}, {the_key} and {the_ca}"
            ) from None
    try:
        context.load_cert_chain(cert, key, password=password or "")
    except (ssl.SSLError, ValueError) as error:
        raise TlsRefused(
            f"{cert} and {key} are not a certificate and its key in PEM "
            f"({_why(error)}); see {the_cert} and {the_key}"
        ) from None
    if client_auth != "none":
        if ca is None:
            raise TlsRefused(
                "clients are to show certificates, but nobody is trusted to sign them; "
                f"name the signer's certificate with {the_ca} FILE"
            )
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise TlsRefused(
                f"{ca} holds no certificates in PEM ({_why(error)}); see {the_ca}"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "need" else ssl.CERT_OPTIONAL
    return context


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, such as `CN=web,OU=ops,O=Example,C=DE`.

    Raises `ValueError` for bytes that are none.
    """
    try:
        (_, body), *_ = _items(certificate)
        (_, signed), *_ = _items(body)
        fields = list(_items(signed))
        if fields[0][0] == 0xA0:  # the version, left out in the oldest certificates
            del fields[0]
        subject = fields[4][1]
        parts = ["+".join(_pair(pair) for _, pair in _items(part)) for _, part in _items(subject)]
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a certificate: {error}") from None
    return ",".join(reversed(parts))


def certified_ids(encryption: ssl.SSLObject | ssl.SSLSocket) -> tuple[Id, ...]:
    """The id of who showed a certificate that we trust."""
    certificate = encryption.getpeercert(binary_form=True)
    if certificate is None:
        return ()
    try:
        return (Id("x509", subject_name(certificate)),)
    except ValueError:
        return ()


def _why(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each value in a row of DER values."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise IndexError("it ends in the middle")
        yield tag, data[at : at + length]
        at += length


def _pair(pair: bytes) -> str:
    """`CN=web`; a type or a value that RFC 2253 has no text for as number and hexadecimal."""
    (_, oid), (tag, value) = _items(pair)
    number = _number(oid)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXT:
        size = len(value)
        head = bytes([tag, size]) if size < 128 else bytes([tag, *_long(size)])
        return f"{keyword or number}=#{(head + value).hex()}"
    return f"{keyword}={_escaped(value.decode(_TEXT[tag]))}"


def _long(size: int) -> bytes:
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(octets)]) + octets


def _number(oid: bytes) -> str:
    """An object identifier with dots."""
    numbers, value = [], 0
    for octet in oid:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    text = "".join(
        "\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text
    )
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    if not inner:
        return "".join("\\" + char for char in text)
    tail = text[lead + len(inner) :]
    return "".join("\\" + c for c in text[:lead]) + inner + "".join("\\" + c for c in tail)
