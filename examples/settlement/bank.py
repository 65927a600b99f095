"""How a settlement server talks to the gateway."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import Any


class Declined(Exception):
    """The gateway did not say that it charged: it may have."""


class Bank:
    """One connection to the gateway, for one thread."""

    def __init__(self, address: str, *, timeout: float = 3.0) -> None:
        host, _, port = address.rpartition(":")
        self._http = HTTPConnection(host, int(port), timeout=timeout)

    def charge(self, wish: Any, key: str | None = None) -> dict[str, Any]:
        """Charge once per key; each call is a charge where there is no key. Raises `Declined`."""
        headers = {"Idempotency-Key": key} if key else {}
        try:
            self._http.request("POST", "/charges", json.dumps(wish), headers)
            response = self._http.getresponse()
            answer = json.loads(response.read())
        except (OSError, HTTPException) as error:
            self._http.close()
            raise Declined(f"no answer: {error}") from error
        if response.status != 200:
            raise Declined(f"{response.status}: {answer}")
        return dict(answer)
