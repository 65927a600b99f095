# What one does with this repository. Each target sets up what it needs, on a fresh Debian or
# Ubuntu with python3 (3.11 or newer, with venv), make and git.
#
#   make demo      the main job on this machine, in a minute, with faults
#   make test      all tests, part by part      PART="unit e2e" runs only these
#   make check     style, types, architecture
#   make simulate  seeds of the simulated world SEEDS=1000 FIRST=0
#   make soak      the long form of the tests
#   make bench     speed, beside its peers
#   make settlement  orders, each charged once  ARGS="--postgres --ensemble"

.PHONY: demo test check simulate soak bench settlement clean
.DELETE_ON_ERROR:

PIP    := .venv/bin/python -m pip --disable-pip-version-check -qq
RUN    := .venv/bin/python
PART   ?=
SEEDS  ?= 200
FIRST  ?= 0
ARGS   ?=

demo: .venv/.installed
	$(RUN) -m incumbent.cli demo

test: .venv/.tools
	@$(RUN) -m tests.run_parts $(PART)

check: .venv/.tools
	.venv/bin/ruff check .
	.venv/bin/mypy
	$(RUN) -m pytest $(wildcard tests/test_architecture.py tests/test_exports.py tests/test_docs.py)

simulate: .venv/.tools
	SEEDS=$(SEEDS) FIRST=$(FIRST) $(RUN) -m pytest -n 2 tests/simulation

soak: .venv/.tools
	$(RUN) -m pytest -m soak --timeout=0 tests
	KILLS=500 SESSION=10 TICK=2 $(RUN) -m pytest --timeout=0 tests/e2e/test_kills.py

bench: .venv/.tools
	$(RUN) -m benchmarks

settlement: .venv/.tools
	$(RUN) -m examples.settlement $(ARGS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# The package with its extras, enough to run it.
.venv/.installed: pyproject.toml constraints.txt
	@sh tests/make_venv.sh
	@$(PIP) install -c constraints.txt -e '.[all]'
	@touch $@

# And what tests and checks need, all of it pinned.
.venv/.tools: .venv/.installed
	@$(PIP) install -r constraints.txt
	@touch $@
