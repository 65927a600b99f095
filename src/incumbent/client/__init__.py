"""The asyncio client: one session, kept over dropped connections and given up in time.

`client` has the verbs, `session` the life of a session, `connection` one TCP connection,
`dialer` the way to a server, `traffic` and `calls` the line of requests, `beats` the heartbeat,
`watches` the one-shot watchers, `passport` the hand-over to another process.
"""

from incumbent.client.client import Client
from incumbent.client.hosts import Host, parse_hosts
from incumbent.client.passport import Passport
from incumbent.client.states import State
from incumbent.client.watches import Watcher

__all__ = ["Client", "Host", "Passport", "State", "Watcher", "parse_hosts"]
