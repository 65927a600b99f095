"""The simulated world and the auditor: how this project proves its promise.

`world.World` runs the real client, server, recipes and agent in one thread, in virtual time, on
hosts that crash, freeze, sleep, drift and are cut off from each other; a seed is one exact run.
`auditor` judges journals and imports nothing of ours; `witness` is the program that writes them.

Rule of this file: it imports nothing, so that the auditor starts alone.
"""

__all__: list[str] = []
