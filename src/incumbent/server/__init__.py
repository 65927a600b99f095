"""A ZooKeeper server for one machine: its tree in memory, its transactions on disk.

`server` drives it, `service` says what each request does, `transactions` what may be written,
`tree` what a transaction changes; `store` and `sqlite` keep it; `main` is the process.
"""

from incumbent.server.server import Server
from incumbent.server.sqlite import SqliteStore
from incumbent.server.store import Batch, Loaded, MemoryStore, Store, StoreFailed

__all__ = ["Batch", "Loaded", "MemoryStore", "Server", "SqliteStore", "Store", "StoreFailed"]
