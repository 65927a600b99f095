"""The agent: the process that decides what runs on its node."""
