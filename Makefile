# Every target but `help`, `lock` and `clean` needs the environment in .venv, which `setup` makes and keeps current.
# A fresh machine needs python3 (3.11 or newer, with venv) and make; everything else comes from requirements.lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
CODE := activities bench cli examples graph tests workflows worker.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo dev worker test chaos check format-check lint types compose-check format bench schema histories lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Ferrata needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 || echo 'not there')." >&2; \
	  echo "Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  v=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "'$(PYTHON)' comes without venv. On Debian and Ubuntu: apt-get install python$$v-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.locked: requirements.lock $(VENV)/.made
	@echo "installing packages (about a minute, once) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.locked
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/.installed ## Make .venv: packages, the temporal binary, the script sandbox (a minute or two, once)
	@$(RUN) -m cli.build_sandbox

demo: setup ## Run the licence audit on a server and worker of its own (DEMO_ARGS=--keep to look around afterwards)
	@$(RUN) -m examples.licenses.demo $(DEMO_ARGS)

# What the examples need; a value of your own wins.
dev worker: export FERRATA_FUNCTIONS ?= examples.licenses.functions

dev: setup ## Start a development server (UI at 8233) and a worker; Ctrl-C stops both (DEV_ARGS="--port 7299")
	@$(BIN)/ferrata dev $(DEV_ARGS)

worker: setup ## Start the worker alone, for the server that TEMPORAL_ADDRESS names
	@$(RUN) worker.py

test: setup ## Run the tests on a real server (PYTEST_ARGS="-k maps -x" to pass options)
	@$(RUN) -m pytest $(PYTEST_ARGS)

chaos: export CHAOS_KILLS ?= 100
chaos: export MAP_KILLS ?= 20
chaos: export CHAOS_SEED ?= $(shell date +%s)

chaos: setup ## Kill worker and server at random under a large run, and show what it cost (CHAOS_KILLS=100 CHAOS_SEED=...)
	@$(RUN) -m pytest -s tests/chaos tests/test_map_losses.py $(PYTEST_ARGS)

check: format-check lint types compose-check test ## Everything that CI runs

format-check: setup
	@$(BIN)/ruff format --check $(CODE)

lint: setup ## Lint
	@$(BIN)/ruff check $(CODE)

types: setup ## Check types (mypy --strict)
	@$(BIN)/mypy

compose-check: setup
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

format: setup ## Format the code and sort imports
	@$(BIN)/ruff check --quiet --fix-only --select I $(CODE)
	@$(BIN)/ruff format $(CODE)

bench: setup ## Measure against hand-written workflows on this machine (BENCH_ARGS="fanout" for one part)
	@$(RUN) -m bench.run $(BENCH_ARGS)

schema: setup ## Write docs/graph.schema.json anew, from the language's models
	@$(RUN) -m graph.schema > docs/graph.schema.json.new
	@mv docs/graph.schema.json.new docs/graph.schema.json

histories: setup ## Record those of tests/histories that are missing (recorded ones keep replaying for ever)
	@$(RUN) tests/record_histories.py

lock: $(VENV)/.made ## Resolve requirements.lock again, for all supported Python versions (UPGRADE=1 takes newer ones)
	@test -x $(BIN)/uv || $(RUN) -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --quiet \
	  $(if $(UPGRADE),--upgrade) --output-file requirements.lock

clean: ## Remove .venv, caches and the state of development servers
	rm -rf $(VENV) .ferrata .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
