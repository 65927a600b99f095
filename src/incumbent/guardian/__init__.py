"""The guardian: a small process that owns the programs, so that its agent may die.

Pure: `messages` (what it and its agent say) and `codec` (their lines), `actions` (the seam to
the world and the driver's contract), `seat` (one tree's life), `table` (all decisions), `words`
(its lines on stderr). Of the kernel: `kernel`, `cgroup`, `first` (a tree's first process) and
its `ear`, `containment` (the trees), `link`, `logs` and `logwriter` with a `shared_number`,
`closer`, and `main`, which runs the table over them.
"""
