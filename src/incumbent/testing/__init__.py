"""The simulated world and the auditor: how this project proves its promise.

`World` runs the real client, server, recipes and agent in one thread, in virtual time, with
hosts that crash, freeze, sleep, drift and are cut off from each other; a seed is one exact run.
`auditor` judges journals and imports nothing of ours; `witness` is the program that writes them.

Rule of this file: nothing in incumbent imports from here.
"""

from incumbent.testing.world import Host, HostClock, Process, ProcessKilled, World, here

__all__ = ["Host", "HostClock", "Process", "ProcessKilled", "World", "here"]
