"""The payment gateway: somebody else's service, with a ledger of its own, and faults to order.

    POST /charges   {"order": 7, "cents": 1250}, header Idempotency-Key: …   → {"charge": "c31"}
    GET  /ledger    every charge that was made
    POST /faults    {"slow": 0.1, "fail": 0.05, "cut": 0.05}: the share of requests that take half
                    a second, are answered 500 after the charge, or get no answer after the charge

A request with a key that was seen before makes no charge: it is answered as the first one was, or
refused if it does not say the same. Without a key each request is a charge: so are many real
services.

    python gateway.py --port 8901 --ledger ledger.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from pathlib import Path
from typing import Any

Headers = dict[str, str]


class Gateway:
    """The ledger, in memory and in a file that survives the process."""

    def __init__(self, ledger: Path, rng: random.Random) -> None:
        self.charges: list[dict[str, Any]] = []
        self.faults = {"slow": 0.0, "fail": 0.0, "cut": 0.0}
        self._by_key: dict[str, dict[str, Any]] = {}
        self._rng = rng
        if ledger.exists():
            for line in ledger.read_text().splitlines():
                self._remember(json.loads(line))
        self._file = ledger.open("a")

    def charge(self, key: str, order: int, cents: int) -> dict[str, Any] | None:
        """The charge that was made, now or before; None: the key was used for something else."""
        if key and (before := self._by_key.get(key)):
            return before if (before["order"], before["cents"]) == (order, cents) else None
        made = {"charge": f"c{len(self.charges) + 1}", "key": key, "order": order, "cents": cents}
        self._file.write(json.dumps(made) + "\n")
        self._file.flush()
        self._remember(made)
        return made

    def _remember(self, made: dict[str, Any]) -> None:
        self.charges.append(made)
        if made["key"]:
            self._by_key[made["key"]] = made

    def strikes(self, fault: str) -> bool:
        return self._rng.random() < self.faults[fault]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read_request(reader):
                answer = await self._answer(*request)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, line: str, headers: Headers, body: bytes) -> bytes | None:
        if line.startswith("POST /charges "):
            if self.strikes("slow"):
                await asyncio.sleep(0.5)
            wish = json.loads(body)
            made = self.charge(headers.get("idempotency-key", ""), wish["order"], wish["cents"])
            if self.strikes("fail"):
                return _response("500 Internal Server Error", {"error": "after the charge"})
            if self.strikes("cut"):
                return None
            if made is None:
                return _response("409 Conflict", {"error": "this key was used for another charge"})
            return _response("200 OK", {"charge": made["charge"]})
        if line.startswith("GET /ledger "):
            return _response("200 OK", self.charges)
        if line.startswith("POST /faults "):
            self.faults |= json.loads(body)
            return _response("200 OK", self.faults)
        return _response("404 Not Found", {"error": "charges, ledger or faults"})


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, Headers, bytes] | None:
    line = (await reader.readline()).decode()
    if not line:
        return None
    headers: Headers = {}
    while header := (await reader.readline()).decode().strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return line, headers, await reader.readexactly(int(headers.get("content-length", "0")))


def _response(status: str, content: Any) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def main() -> None:
    parser = argparse.ArgumentParser(description="A payment gateway that can be made to fail.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    gateway = Gateway(options.ledger, random.Random(options.seed))
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", options.port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
