# All set-up happens here: a machine with Python 3.11+, git and make needs nothing else.
# The first interpreter that runs and is new enough; a name on the path may be a shim for nothing.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
  $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test check format storm storm-streams kills lab-smoke lab-paper fuzz bench compiled clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(VENV)/.ready  ## create or refresh .venv; the command line is then .venv/bin/penstock

$(VENV)/.ready: pyproject.toml setup.py
	@test -n "$(PYTHON)" || \
	  { echo "Penstock needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 setup"; exit 4; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Penstock and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup  ## the town on real sockets, measured on Spark, and a report to look at
	@$(BIN)/penstock demo networks/town.toml --seed 7

test: setup check  ## everything that continuous integration runs
	$(BIN)/python -m pytest -n 2 --dist loadgroup --deselect tests/test_tidy.py

check: setup  ## format, lint, types, tidiness
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_tidy.py

format: setup  ## format all files, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

storm: setup  ## the invariants over 2,000 seeds instead of the 200 of the tests
	$(BIN)/penstock storm --seeds 2000 --workers 2

storm-streams: setup  ## streams over 100,000 seeds instead of the 300 of the tests: some hours
	$(BIN)/penstock storm --streams --seeds 100000 --workers 2

kills: setup  ## 1,000 kills of broker processes under a stream that is in use, instead of the 30 of the tests
	$(BIN)/penstock storm --kills 1000

lab-smoke: setup  ## every experiment of the papers, small: a minute or two
	$(BIN)/penstock lab run all --scale smoke

# The compiled copy, if one can be made here, else nothing: then the lab runs as it is, half as fast.
COMPILED = $(shell $(BIN)/python tools/compile.py --unless-current $(CURDIR)/build/compiled >&2 && echo PYTHONPATH=$(CURDIR)/build/compiled)

lab-paper: setup  ## every experiment at the size of the papers, five seeds: many hours; says how long, and goes on where it was
	-$(COMPILED) $(BIN)/penstock lab run all --scale paper --keep docs/results
	-$(COMPILED) $(BIN)/penstock lab run all --scale paper --seeds 1 --product --keep docs/results
	$(BIN)/penstock lab summary

fuzz: setup  ## parser, codec, frame decoder, scenario reader and transport under atheris, a minute each
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	for target in parser codec frames scenario header control; do $(BIN)/python fuzz/run.py --target $$target --seconds 60 || exit 1; done

bench: setup  ## all benchmarks, beside their peers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python bench/bloom.py
	$(BIN)/python bench/matching.py
	$(BIN)/python bench/predicates.py
	$(BIN)/python bench/simulator.py
	$(BIN)/python bench/retrieval.py
	$(BIN)/python bench/pipeline.py
	$(BIN)/python bench/throughput.py
	$(BIN)/python bench/streams.py
	$(BIN)/python bench/spark_source.py
	$(BIN)/python bench/tracing.py
	$(BIN)/python bench/hostile.py

compiled: setup  ## a copy compiled with mypyc (needs a C compiler); use it with PYTHONPATH=build/compiled
	$(BIN)/python tools/compile.py build/compiled

clean:  ## remove everything that can be made again
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
