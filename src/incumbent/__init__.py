"""Incumbent: each of your programs on exactly one machine at a time."""
