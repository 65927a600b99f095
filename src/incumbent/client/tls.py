"""A context for encrypted connections: who the servers must be, and who we are.

Rule of this file: what is not said is checked: certificates, and the names in them.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from incumbent.credentials import tls_context

__all__ = ["context"]


def context(
    *,
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    password: str | None = None,
) -> ssl.SSLContext:
    """For `tls=`. Any other `ssl.SSLContext` for a client will do as well.

    ca           file of the certificates that sign servers' ones; default: the system's
    certificate  our own, for servers that demand one; with its key in the same file or in `key`
    password     of the key, if it is encrypted

    Raises OSError (`ssl.SSLError` is one) for a file that cannot be read or used.
    """
    return tls_context(ca=ca, certificate=certificate, key=key, password=password)
