# In a clean clone, `make demo` and `make test` set up everything themselves.
# Every target that needs the environment depends on it; nothing outside this folder is changed.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The tests start hundreds of processes. With this variable, each would compile all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
# More for pytest, for the demo or for the bench:  make test ARGS='-k ledger -x'
ARGS ?=
# The dashboard is built and checked with the Node.js of .venv.
UI := $(PY) ui/hatch_build.py
# Packages from npm for the tests, such as a browser. If one cannot be installed, pytest reports the tests it skips.
PACKAGES := $(PY) -m tests.packages
TRY_PACKAGES := $(PACKAGES) 2>/dev/null || true

# Installed files contain the path of this folder, so a copy of it is set up again.
HERE := $(shell pwd | cksum | cut -d' ' -f1)
READY := .venv/.ready-$(HERE)
TOOLS := .venv/.tools-$(HERE)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) $(TOOLS) ## Create or renew .venv, with all that is needed to develop Millpond
	@echo ".venv is ready: $$($(PY) --version)"

demo: $(READY) ui ## Run a demonstration of about a minute
	@$(PY) examples/demo.py $(ARGS)

# Five processes: many tests wait for other processes, leases and retries more than they compute.
PYTEST := $(PY) -m pytest --numprocesses=5 --dist=loadfile --no-loadscope-reorder
test: $(READY) ui ## Run all tests, of the core and of the products
	@$(UI) tools
	@$(TRY_PACKAGES)
	@$(PYTEST) --ignore=products/tests/conformance $(ARGS)

test-core: $(READY) ui ## Run the tests of the core alone
	@$(UI) tools
	@$(TRY_PACKAGES)
	@$(PYTEST) tests $(ARGS)

test-loaded: ## Run all tests while four processes keep the processors busy
	@sh scripts/busy $(MAKE) test

# What needs no browser, no server and hardly any processes: the engine and the layers below it.
FAST := $(addprefix tests/,engine migrations outbound races services storage tidy unit)
test-fast: $(READY) ui ## Run the tests of the engine and the layers below it, except slow ones
	@$(UI) tools
	@$(TRY_PACKAGES)
	@$(PYTEST) -m 'not slow' $(FAST) $(ARGS)

# At most two processes (ARGS='-n 2'): the default of a server is 100 connections.
INSTALLED := $(addprefix tests/,api client engine faults migrations providers races services store tenant_databases worker)
INSTALLED += products/tests
test-installed: $(READY) ui ## Run the tests that use a database on an installed PostgreSQL: as it comes, then with hostile settings
	@sh scripts/installed-postgres $(PY) -m pytest $(INSTALLED) $(ARGS)
	@HOSTILE=1 sh scripts/installed-postgres $(PY) -m pytest $(INSTALLED) $(ARGS)

test-floors: $(READY) ui ## Run the tests with the oldest dependencies that pyproject.toml allows (needs uv)
	@$(TRY_PACKAGES)
	@sh scripts/floors $(ARGS)

test-packages: $(READY) ## Install the npm packages of the tests, or print why not; `make test` tries it too
	@$(PACKAGES)

# In one process: its checks run concurrently, on servers that they share.
conformance: $(READY) ## Check every sentence of the five contracts; writes products/docs/reference/conformance.md
	@$(TRY_PACKAGES)
	@$(PY) -m pytest -q --tb=native products/tests/conformance $(ARGS)

docs: $(READY) ui ## Run the tests of the documentation
	@$(PY) -m pytest tests/docs products/tests/docs $(ARGS)

ui: $(READY) ## Build the dashboard if its sources have changed
	@$(UI) build

ui-watch: $(READY) ## Build the dashboard at every change of its sources, until Ctrl-C
	@$(UI) watch

reference: $(READY) ## Rewrite the generated parts of docs/reference
	@$(PY) docs/generate.py $(ARGS)

pictures: $(READY) ui ## Take the screenshots of the documentation again (needs a browser)
	@$(TRY_PACKAGES)
	@$(PY) -m docs.pictures $(ARGS)

lint: $(TOOLS) ## Check style and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo "unformatted files: run 'make format'"; exit 1; }
	@$(UI) run biome check

format: $(TOOLS) ## Format the code, and fix what can be fixed
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .
	@$(UI) run biome check --write

types: $(TOOLS) ## Check types: src strictly, the rest in general
	@$(PY) -m pyright
	@$(UI) run tsc

imports: $(TOOLS) ## Check the import rules
	@$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo

chaos: $(READY) ## Inject failures into 100 workers and 10,000 jobs (some minutes); every job must end once
	@$(PY) -m tests.chaos.fleet $(ARGS)

chaos-webhooks: $(READY) ## Send 20,000 webhooks to 200 receivers, half of which fail (some minutes)
	@$(PY) -m tests.chaos.webhooks $(ARGS)

faults: $(READY) ## Inject random faults into a full deployment under load, and account for every request (some minutes)
	@$(PY) -m tests.chaos.faults $(ARGS)

mutants: $(READY) ui ## Try deliberate bugs, each in a copy of the tree; the tests must catch every one (half an hour)
	@$(PY) -m tests.mutants $(ARGS)

schema: $(READY) ## Rewrite tests/migrations/schema.sql and functions.txt from the migrations
	@UPDATE_SCHEMA=1 $(PY) -m pytest -q tests/migrations $(ARGS)

bench: $(READY) ## Compare Millpond with other queues; writes bench/RESULTS.md
	@$(PY) -m bench.run $(ARGS)

build: $(READY) ## Build both wheels into dist/
	@rm -rf dist
	@$(PY) -m hatchling build --target wheel
	@cd products && ../$(PY) -m hatchling build --target wheel --directory ../dist

package: build ## Test both wheels in separate environments
	@sh scripts/try-wheel dist/millpond-*.whl dist/millpond_products-*.whl

check: ## Run everything that CI runs
	@bash .ci/run

lock: ## Pin the dependencies of both pyproject.toml (needs uv); UPGRADE=1 upgrades all
	@sh scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## Remove all generated files, including .venv
	@rm -rf .venv bench/.venv ui/node_modules src/millpond/ui/static build/ui.json dist .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	@find src products tests bench examples scripts ui -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): pyproject.toml products/pyproject.toml requirements-test.lock scripts/env $(if $(shell test -x $(PY) && echo there),,again)
	@sh scripts/env create .venv
	@echo "Setting up .venv with $$($(PY) --version)"
	@sh scripts/env install .venv --require-hashes --requirement requirements-test.lock
	@sh scripts/env install .venv --no-deps --no-build-isolation --editable . --editable ./products
	@touch $@

$(TOOLS): $(READY) requirements-dev.lock ui/package-lock.json
	@sh scripts/env install .venv --require-hashes --requirement requirements-dev.lock
	@$(UI) tools
	@touch $@

# The Python of the environment may disappear when the system's Python is upgraded.
again:

.PHONY: again $(shell sed -n 's/^\([a-z-]*\):.*## .*/\1/p' Makefile)
