# From a clean clone, `make demo` and `make test` do all the set-up themselves.
# Every target that needs an environment asks for it; nothing outside this folder is touched.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The tests start hundreds of processes. Each would compile what it imports, where the shell forbids to keep it.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
# More for pytest, for the demo or for the bench:  make test ARGS='-k ledger -x'
ARGS ?=
# The dashboard is built and checked with the Node.js of .venv.
UI := $(PY) ui/hatch_build.py
# A browser for the tests, among others, from npm. Of what cannot be brought pytest tells, where it skips for the lack.
PACKAGES := $(PY) -m tests.packages
TRY_PACKAGES := $(PACKAGES) 2>/dev/null || true

# What is installed names this folder, so a copy of it is set up anew.
HERE := $(shell pwd | cksum | cut -d' ' -f1)
READY := .venv/.ready-$(HERE)
TOOLS := .venv/.tools-$(HERE)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) $(TOOLS) ## Make or renew .venv with everything for work on Millpond
	@echo ".venv is ready: $$($(PY) --version)"

demo: $(READY) ui ## See what Millpond is for, in a minute
	@$(PY) examples/demo.py $(ARGS)

# Four processes: many tests wait for other processes, leases and retries more than they compute.
test: $(READY) ui ## Run all tests
	@$(UI) tools
	@$(TRY_PACKAGES)
	@$(PY) -m pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder --ignore=tests/conformance $(ARGS)

test-loaded: ## Run all tests while four processes keep the processors busy
	@sh scripts/busy $(MAKE) test

# What needs no browser, no server and hardly a process: the engine and all that it stands on.
FAST := $(addprefix tests/,engine migrations outbound pages races rules services storage tidy unit)
test-fast: $(READY) ui ## Run the tests of the engine and what is below it, without those marked slow
	@$(UI) tools
	@$(TRY_PACKAGES)
	@$(PY) -m pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder -m 'not slow' $(FAST) $(ARGS)

test-floors: $(READY) ui ## Run the tests with the oldest dependencies that pyproject.toml allows (needs uv)
	@$(TRY_PACKAGES)
	@sh scripts/floors $(ARGS)

test-packages: $(READY) ## Bring what the tests need from npm, or say why not; `make test` tries it too
	@$(PACKAGES)

# In one process: its checks run beside each other, on servers that they share.
conformance: $(READY) ## Check every sentence of the five contracts; writes docs/reference/conformance.md
	@$(TRY_PACKAGES)
	@$(PY) -m pytest -q --tb=native tests/conformance $(ARGS)

docs: $(READY) ui ## Run the tests of the documentation
	@$(PY) -m pytest tests/docs $(ARGS)

ui: $(READY) ## Build the dashboard, unless it is what its sources say
	@$(UI) build

ui-watch: $(READY) ## Build the dashboard at every change of its sources, until Ctrl-C
	@$(UI) watch

reference: $(READY) ## Rewrite the parts of docs/reference that are made from the code
	@$(PY) docs/generate.py $(ARGS)

lint: $(TOOLS) ## Check style and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo "unformatted files: run 'make format'"; exit 1; }
	@$(UI) run biome check

format: $(TOOLS) ## Format the code, and repair what can be repaired
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .
	@$(UI) run biome check --write

types: $(TOOLS) ## Check types: src strictly, the rest in general
	@$(PY) -m pyright
	@$(UI) run tsc

imports: $(TOOLS) ## Check who may import whom
	@$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo

chaos: $(READY) ## Trouble a hundred workers at ten thousand jobs (some minutes); every job must end once
	@$(PY) -m tests.chaos.fleet $(ARGS)

chaos-webhooks: $(READY) ## Tell two hundred receivers, half of them sick, of twenty thousand events (some minutes)
	@$(PY) -m tests.chaos.webhooks $(ARGS)

schema: $(READY) ## Rewrite tests/migrations/schema.sql and functions.txt from the migrations
	@UPDATE_SCHEMA=1 $(PY) -m pytest -q tests/migrations $(ARGS)

bench: $(READY) ## Measure Millpond beside its peers; writes bench/RESULTS.md
	@$(PY) -m bench.run $(ARGS)

build: $(READY) ## Build the wheel into dist/
	@rm -rf dist
	@$(PY) -m hatchling build --target wheel

package: build ## Try the wheel in an environment of its own
	@sh scripts/try-wheel dist/*.whl

check: ## All that CI runs
	@bash .ci/run

lock: ## Pin what pyproject.toml asks for (needs uv); UPGRADE=1 takes the newest of everything
	@sh scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## Remove what was made here, .venv included
	@rm -rf .venv bench/.venv ui/node_modules src/millpond/ui/static build/ui.json dist .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	@find src tests bench examples scripts ui -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): pyproject.toml requirements-test.lock scripts/env $(if $(shell test -x $(PY) && echo there),,again)
	@sh scripts/env create .venv
	@echo "Setting up .venv with $$($(PY) --version)"
	@sh scripts/env install .venv --require-hashes --requirement requirements-test.lock
	@sh scripts/env install .venv --no-deps --no-build-isolation --editable .
	@touch $@

$(TOOLS): $(READY) requirements-dev.lock ui/package-lock.json
	@sh scripts/env install .venv --require-hashes --requirement requirements-dev.lock
	@$(UI) tools
	@touch $@

# The environment's Python may go away, with an upgrade of the system's.
again:

.PHONY: again help setup demo test test-fast test-loaded test-floors test-packages conformance docs ui ui-watch reference lint format types imports chaos chaos-webhooks schema bench build package \
	check lock clean
