"""A ZooKeeper server for one machine: its tree in memory, its transactions on disk.

`server` drives it, `service` says what each request does, `reads` what is answered, `transactions`
what may be written, `acl` by whom, `tree` what a transaction changes; `policy` has the settings;
`store` and `sqlite` keep it; `main` is the process.
"""

from incumbent.server.policy import Policy
from incumbent.server.server import Server
from incumbent.server.sqlite import SqliteStore
from incumbent.server.store import Batch, Loaded, MemoryStore, Store, StoreFailed

__all__ = [
    "Batch",
    "Loaded",
    "MemoryStore",
    "Policy",
    "Server",
    "SqliteStore",
    "Store",
    "StoreFailed",
]
