# Everything a newcomer or CI runs. `make` alone lists the targets.
# ARGS passes flags on: make demo ARGS=--fast, make test ARGS='-k store -x'. WORKERS=0 runs tests in one process.
# Tests wait for servers and disks: four of them at a time are quicker than two on two cores.

SHELL := /bin/bash
.DEFAULT_GOAL := help
ARGS ?=
TEST_LIMIT_S ?= 1400
WORKERS ?= 4
BIN := .venv/bin
NATIVE := .ci/native .ci/opencl $(shell find native -type f)
BENCHMARKS := $(filter-out benchmarks/common.py benchmarks/networks.py benchmarks/serving_common.py,$(sort $(wildcard benchmarks/*.py)))

.PHONY: help setup demo test test-slow mutation bench lint typecheck docs clean postgresql slurm bubblewrap fuse images programs web chromium prometheus qemu ray torch

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready-dev ## make .venv with everything for development

# The stamps make the second run instant; `dev` includes `demo`.
.venv/.ready-dev: pyproject.toml constraints.txt .ci/venv $(NATIVE)
	@.ci/venv dev
	@touch .venv/.ready-demo $@

.venv/.ready-demo: pyproject.toml constraints.txt .ci/venv $(NATIVE)
	@.ci/venv demo
	@touch $@

demo: .venv/.ready-demo ## watch the main job: many tenants, a killed server, nothing lost (a minute)
	@$(BIN)/shoal demo $(ARGS)

test: setup postgresql slurm bubblewrap fuse images programs web chromium ## prove it: all tests but the slow ones
	@timeout --foreground --kill-after=60 $(TEST_LIMIT_S) .ci/test --forks $(WORKERS) -m 'not slow' $(ARGS)

test-slow: setup postgresql slurm bubblewrap fuse images programs web chromium prometheus qemu ## the heavier suites: fuzzing, long simulations, each property on all of its examples
	@$(BIN)/pytest -m 'slow or property' --hypothesis-profile=ci $(ARGS)

mutation: setup ## change one operator at a time and see that a test notices (hours; ARGS=turns for a part)
	@WORKERS=$(WORKERS) nice $(BIN)/python tests/mutation.py $(ARGS)

postgresql:
	@.ci/postgresql

slurm:
	@.ci/slurm

bubblewrap:
	@.ci/bubblewrap

fuse:
	@.ci/fuse

images:
	@.ci/images

programs:
	@.ci/programs

web: ## build the web page, where its sources have changed
	@.ci/web

chromium:
	@.ci/chromium

prometheus:
	@.ci/prometheus

qemu:
	@.ci/qemu

ray: setup ## get Ray (240 MB), which the tests of its engine need; without it they are skipped
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt ray

torch: setup ## get PyTorch for the CPU into .venv-torch, and run the tests of programs that use it there
	@.ci/torch $(ARGS)

bench: setup ## every benchmark in order, each with its table
	@failed=; for script in $(BENCHMARKS); do \
	  echo "== $$script"; $(BIN)/python $$script || failed+=" $$script"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

lint: setup ## ruff, its formatting, who may import whom, and what nothing uses
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@.ci/unused

typecheck: setup ## mypy --strict
	@$(BIN)/mypy

docs: setup ## build the site into build/site, strictly: links and anchors resolve, console examples parse
	@$(BIN)/python docs/check_links.py
	@DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

clean: ## remove .venv, caches and builds
	rm -rf .venv .venv-torch .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/shoal/*/_native src/shoal/web/_site web/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
