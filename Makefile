# make demo | check | test | test-thorough | lint | docs: each makes its own .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles what it imports; to compile all of torch here would take as long as to unpack it.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# What one process compiles the others read: a test run starts about fifty that import torch.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo check test test-thorough lint docs clean

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $@

.venv/dev: .venv/core
	$(INSTALL) -e '.[dev]'
	touch $@

.venv/docs: .venv/core
	$(INSTALL) -e '.[docs]'
	touch $@

demo: .venv/core
	PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder

check: lint
	set -e; tests=$$($(BIN)/python scripts/changed_tests.py); \
	    test -z "$$tests" || $(BIN)/pytest -q -x $$tests || test $$? -eq 5

test: lint
	$(PYTEST)

test-thorough: .venv/dev
	$(PYTEST) -m 'thorough and not slow and not gpu'

docs: .venv/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -c docs . build/site
	cp build/site/README.html build/site/index.html

clean:
	rm -rf .venv .cache build runs multirun
