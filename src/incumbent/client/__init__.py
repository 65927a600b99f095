"""The asyncio client: one session, kept over dropped connections and given up in time.

`client` is what one uses, with the operations in `verbs`, and `transaction` and `events` for
multis and lasting watches; `session` is the life of a session, `connection` one TCP connection,
`handshake`, `sasl`, `kerberos` and `tls` its beginning, `dialer` the way to a server, `traffic` and `calls`
the line of requests, `beats` the heartbeat, `watches` who waits for what, `callbacks` functions
of strangers, `chroot` paths below a root, `passport` the hand-over to another process.
"""

from incumbent.client.client import Client
from incumbent.client.events import Events
from incumbent.client.hosts import Host, parse_hosts, split_chroot
from incumbent.client.passport import Passport
from incumbent.client.states import State
from incumbent.client.transaction import Transaction
from incumbent.client.watches import Watcher

__all__ = [
    "Client",
    "Events",
    "Host",
    "Passport",
    "State",
    "Transaction",
    "Watcher",
    "parse_hosts",
    "split_chroot",
]
