# Every target sets up what it needs on a fresh machine; `make` alone lists them.
# The set-up is skipped once done (see deploy/setup.sh) and redone when pyproject.toml changes.

BIN := .venv/bin
SETUP := bash deploy/setup.sh
ARGS ?=
C_FILES = $(shell git ls-files '*.c' '*.h')

.PHONY: help demo test acceptance test-kernels bench-agent bench-ebpf bench-workload lint format clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## set up, serve real load, inject a real fault, find its cause (ARGS="--fault surge --seed 7")
	@$(SETUP) agent,detector,workload
	@$(BIN)/tailcause demo $(ARGS)

test: ## set up and run all tests (ARGS="-k sender", ARGS="-m 'not e2e'")
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/pytest $(ARGS)

acceptance: ## every fault five times with different seeds (about 35 minutes)
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/python tests/acceptance/run.py $(ARGS)

test-kernels: ## boot Debian's stock kernel under emulation and run the probes' tests there (ARGS=--quick)
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/python -m tests.kernels.run $(ARGS)

bench-ebpf: ## cost of the probes beside runqlat and biolatency (ARGS=--quick for a minute's worth)
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/python -m tests.bench.bench_ebpf $(ARGS)

bench-agent: ## cost of the agent on a full node beside the node exporter, half an hour (ARGS=--quick for ten minutes)
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/python -m tests.bench.bench_agent $(ARGS)

bench-workload: ## batching, caches and instrumentation of the served model, ten minutes (ARGS=--quick for a minute and a half)
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/python -m tests.bench.bench_workload $(ARGS)

lint: ## ruff, mypy --strict, import-linter, clang-format
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@if command -v clang-format >/dev/null; then clang-format --dry-run -Werror $(C_FILES); \
	else echo "clang-format is not installed: the C files were not checked"; fi

format: ## let ruff format and fix what it can
	@$(SETUP) agent,detector,workload,dev
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .
	@clang-format -i $(C_FILES)

clean: ## remove the virtual environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
