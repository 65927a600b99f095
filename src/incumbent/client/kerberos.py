"""SASL GSSAPI, the client's side: Kerberos 5, by way of the package `gssapi`, which is an extra.

Rule of this file: the library below may ask a KDC, and waits for it: it is called in a thread of
its own, never on the loop. Server and client prove themselves to each other, or nothing is believed.

Source: RFC 4752. The service is `zookeeper` at the host as it was named in the list of hosts;
whether that name is looked up before a ticket is asked for is krb5.conf's to say
(`dns_canonicalize_hostname`, `rdns`). Tickets come from where Kerberos keeps them: a `kinit`, or
a keytab named by KRB5_CLIENT_KTNAME.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from incumbent.wire.sasl import SaslFailed

__all__ = ["Kerberos", "no_layer"]

T = TypeVar("T")

_NO_LAYER = 1
"""The bit of RFC 4752 for a connection that goes on as it is after the exchange."""


class Kerberos:
    """One exchange: tickets, the server's proof, and that there is no layer of SASL's own."""

    def __init__(self, host: str, principal: str = "") -> None:
        """`principal`: as whom; "": whoever the tickets are for."""
        self._host = host
        self._principal = principal
        self._context: Any = None
        self._is_done = False

    async def step(self, challenge: bytes) -> bytes | None:
        """See `Exchange`. Raises `SaslFailed`."""
        return None if self._is_done else await _off_the_loop(lambda: self._next(challenge))

    def _next(self, challenge: bytes) -> bytes:
        try:
            import gssapi
        except ImportError as error:
            why = f"GSSAPI needs the package gssapi ({error}): pip install 'incumbent[gssapi]'"
            raise SaslFailed(why) from None
        try:
            if self._context is None:
                self._context = self._begin(gssapi)
                return bytes(self._context.step() or b"")
            if not challenge:
                raise SaslFailed("the server does not speak GSSAPI")
            if not self._context.complete:
                return bytes(self._context.step(challenge) or b"")
            answer = no_layer(self._context.unwrap(challenge).message)
            self._is_done = True
            return bytes(self._context.wrap(answer, False).message)
        except gssapi.exceptions.GSSError as error:
            raise SaslFailed(f"Kerberos, for zookeeper/{self._host}: {_said(error)}") from None

    def _begin(self, gssapi: Any) -> Any:
        ours = None
        if self._principal:
            name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
            ours = gssapi.Credentials(name=name, usage="initiate")
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=gssapi.Name(f"zookeeper@{self._host}", gssapi.NameType.hostbased_service),
            creds=ours,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=[flags.mutual_authentication, flags.integrity],
        )


def no_layer(offer: bytes) -> bytes:
    """The answer to a server's last word: which layers it offers, and how much it takes at once.

    Raises `SaslFailed` unless it is content with none; for that there is TLS.
    """
    if len(offer) != 4:
        raise SaslFailed(f"the server's offer of layers has {len(offer)} bytes instead of 4")
    if not offer[0] & _NO_LAYER:
        raise SaslFailed("the server wants a layer of SASL's own; use TLS")
    return bytes((_NO_LAYER, 0, 0, 0))


def _said(error: Exception) -> str:
    """The library's words without its numbers, in one line."""
    return " ".join(str(error).split())


async def _off_the_loop(function: Callable[[], T]) -> T:
    """Its result. Given up, it ends by itself, and holds up neither the loop nor the program's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: Exception | None) -> None:
        if not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, failed = None, None
        try:
            result = function()
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, result, failed)

    threading.Thread(target=work, name="incumbent-kerberos", daemon=True).start()
    return await future
