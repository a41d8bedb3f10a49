# The daily loop. `make` alone lists the targets; each of them sets up what it needs.

PY := .venv/bin/python
READY := .venv/.ready
# More options for pytest: make test PYTEST_ARGS="-n 2 -k leap"
PYTEST_ARGS ?=
CODE := src $(wildcard tests/typing)
BENCHMARKS := $(sort $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))

# pyright asks the network whether there is a newer one, unless told not to.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test quick fix check docs bench clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## see rota at work on this machine
	$(PY) demo/run.py

test: $(READY) ## every test, also those that need real servers, which it installs and starts itself
	tools/services
	$(PY) -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

quick: $(READY) ## the tests that need no servers, under 30 s
	$(PY) -m pytest -m quick -n 2 $(PYTEST_ARGS)

fix: $(READY) ## format the code and repair what can be repaired
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

check: $(READY) ## format, lint, types (mypy and pyright), layers
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy $(CODE)
	$(PY) -m pyright $(CODE)
	.venv/bin/lint-imports

docs: $(READY) ## the documentation, in docs/_build/html; a warning is an error
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html

bench: $(READY) ## every benchmark, one after another
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(PY) $$script; done

clean: ## remove what make has made, and nothing else
	rm -rf .venv docs/_build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find benchmarks demo docs src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): pyproject.toml tools/venv
	tools/venv
	@touch $@
