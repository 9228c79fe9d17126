# Everyday commands; `make` alone lists them. Works with GNU make 3.81 (macOS) and later.

PYTHON ?= python3
VENV   ?= .venv
PEERS  ?= .venv-peers
PEERS_JAX ?= .venv-peers-jax
PEERS_UI ?= .venv-peers-ui
CONFIG ?= CartPole-v1:ppo
ARGS   ?=

BIN  := $(VENV)/bin
RUFF_PATHS := gymnasium_solver tests benchmarks docs

# The pins hold for the isolated build too: pip up to 25.2 reads PIP_CONSTRAINT there, later
# ones PIP_BUILD_CONSTRAINT.
PIP_ENV = PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$(1) PIP_BUILD_CONSTRAINT=$(1)

# The networks of the tests are tiny and the suite runs one process per core, so a thread pool in
# each process only slows it down. ONEDNN_JIT_PROFILE=0: no perf-PID.map files on aarch64.
# worksteal: each process takes half of the list, not every other test, so that few fixtures and
# imports are made twice.
# PYTHONDONTWRITEBYTECODE, which many images set: without bytecode every process that a test starts
# compiles the package again.
TEST_ENV := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 ONEDNN_JIT_PROFILE=0 GOMP_SPINCOUNT=300

.DEFAULT_GOAL := help
.PHONY: help setup train test test-slow test-learning test-services check format docs peers peers-ui bench clean clean-venv

help: ## list the targets
	@echo "usage: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.setup-done ## create .venv and install the pinned versions (again only when they change)

$(VENV)/.setup-done: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo "make: '$(PYTHON)' was not found; install Python 3.11 or later, or name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: '$(PYTHON)' is $$($(PYTHON) -V 2>&1), but 3.11 or later is needed; name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(VENV) holds $$($(BIN)/python -V 2>&1), but 3.11 or later is needed; remove it: make clean-venv" >&2; exit 1; }
	@echo "installing the pinned packages into $(VENV) (minutes the first time) ..."
	@$(call PIP_ENV,constraints.txt) $(BIN)/python -m pip install -q -e '.[dev]'
	@$(BIN)/python -m compileall -q gymnasium_solver
	@touch $@

train: setup ## train; CONFIG=CartPole-v1:ppo ARGS="--seed 1" choose what and how
	@$(BIN)/gsolve train $(CONFIG) $(ARGS)

test: setup ## the suite on two processes, without the long tests (test-slow, test-learning, test-services)
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not learning and not services and not slow" $(ARGS)

test-slow: setup ## the tests that take seconds each and that make test leaves out
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "slow and not learning and not services" $(ARGS)

test-learning: setup ## the tests that train to a score (many minutes)
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 -m learning $(ARGS)

test-services: setup ## the tests with Ray, Slurm, W&B and TensorBoard; installs them first
	@$(call PIP_ENV,constraints.txt) $(BIN)/python -m pip install -q -e '.[dev,services]'
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 -m services $(ARGS)

check: setup ## formatting, lint and types
	@$(BIN)/ruff format --check $(RUFF_PATHS)
	@$(BIN)/ruff check $(RUFF_PATHS)
	@$(BIN)/mypy

format: setup ## format the code and sort the imports
	@$(BIN)/ruff check --fix --quiet $(RUFF_PATHS)
	@$(BIN)/ruff format $(RUFF_PATHS)

docs: setup ## rewrite the generated tables in README.md and docs/
	@$(BIN)/python -m docs.make_tables

peers: $(PEERS)/.setup-done $(PEERS_JAX)/.setup-done ## create .venv-peers and .venv-peers-jax with the pinned libraries the benchmarks compare with

PEER_LISTS := $(wildcard benchmarks/peers-requirements*.txt)
PEERS_PIP = $(call PIP_ENV,benchmarks/peers-constraints.txt) $(PEERS)/bin/python -m pip install -q -r

# What cannot be installed is said here, and again by the benchmark, which does without it.
$(PEERS)/.setup-done: benchmarks/peers-constraints.txt $(PEER_LISTS)
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@echo "installing the pinned peers into $(PEERS) ..."
	@$(PEERS_PIP) benchmarks/peers-requirements.txt
	@for peer in sbx box2d cleanrl envpool; do \
	  $(PEERS_PIP) benchmarks/peers-requirements-$$peer.txt || \
	  echo "make: $$peer cannot be installed here; the benchmarks do without it" >&2; done
	@$(PEERS)/bin/python -m benchmarks.peers.cleanrl_ppo fetch || \
	  echo "make: CleanRL's ppo.py cannot be fetched here; the benchmarks do without it" >&2
	@touch $@

$(PEERS_JAX)/.setup-done: benchmarks/peers-jax-constraints.txt benchmarks/peers-requirements-jax.txt
	@test -x $(PEERS_JAX)/bin/python || $(PYTHON) -m venv $(PEERS_JAX)
	@echo "installing rejax into $(PEERS_JAX) ..."
	@$(call PIP_ENV,benchmarks/peers-jax-constraints.txt) $(PEERS_JAX)/bin/python -m pip install -q \
	  -r benchmarks/peers-requirements-jax.txt || \
	  echo "make: rejax cannot be installed here; the benchmarks do without it" >&2
	@touch $@

peers-ui: $(PEERS_UI)/.setup-done ## create .venv-peers-ui with Gradio and Trackio, which the web app is measured beside

$(PEERS_UI)/.setup-done: benchmarks/peers-ui-constraints.txt benchmarks/peers-requirements-ui.txt
	@test -x $(PEERS_UI)/bin/python || $(PYTHON) -m venv $(PEERS_UI)
	@echo "installing Gradio and Trackio into $(PEERS_UI) ..."
	@$(call PIP_ENV,benchmarks/peers-ui-constraints.txt) $(PEERS_UI)/bin/python -m pip install -q \
	  -r benchmarks/peers-requirements-ui.txt
	@touch $@

# A peer that cannot be installed is reported by the benchmark and does not stop the rest.
bench: setup ## measure against the peers; ARGS=--quick for a short pass
	@$(MAKE) -s --no-print-directory peers || echo "make: the peers are not installed; measuring without them" >&2
	@$(BIN)/gsolve bench --peers-python $(PEERS)/bin/python \
	  --peers-jax-python $(PEERS_JAX)/bin/python $(ARGS)
	@$(BIN)/python -m docs.make_tables

clean: ## remove caches and build output (keeps .venv and runs/)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .coverage *.egg-info
	@find gymnasium_solver tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

clean-venv: ## remove .venv and the environments of the peers
	@rm -rf $(VENV) $(PEERS) $(PEERS_JAX) $(PEERS_UI)
