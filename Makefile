# Every verb brings its own environment: .venv, made on demand with the versions of
# constraints.txt and thrown away when those or pyproject.toml change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# No install may choose a version for itself, the build backend included: it is
# installed under the same constraints, and pip builds with it.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

# The benchmark that `make bench` runs: step, overhead, projection, train or robust.
NAME ?= step

# Test processes run side by side; one thread each keeps them out of each other's way.
ONE_THREAD := OMP_NUM_THREADS=1

# Processors round differently. Under these settings torch, MKL and OpenBLAS round as
# on one without vector instructions, and as on one with AVX2 but without AVX-512.
PLAIN_CPU := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Prescott
AVX2_CPU := ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell
# The tests of what is solved, projected or certified.
ROUNDING_TESTS := tests/methods tests/projection tests/certificates tests/oracles \
  tests/training/test_solve.py tests/test_autocast.py

.PHONY: help demo test test-isa check format bench theory interrupt api clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:  ## show the verbs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/all.stamp  ## README's example, two experiments of the paper, one page
	$(BIN)/python examples/quickstart.py
	$(BIN)/oneproj-paper reproduce transfer-gaussian abstention-gaussian --jobs 2 \
	  --projected-sgd-seeds 2 --out demo/runs
	$(BIN)/oneproj-paper report demo/runs --out demo/report.html

test: $(VENV)/dev.stamp $(VENV)/browser.stamp  ## run the whole test suite, docstring examples included
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist loadfile -rs $(ARGS)

test-isa: $(VENV)/dev.stamp  ## run the tests that solve or project as two other processors round
	$(ONE_THREAD) $(PLAIN_CPU) $(BIN)/python -m pytest -n 2 --dist loadfile \
	  $(ROUNDING_TESTS) $(ARGS)
	$(ONE_THREAD) $(AVX2_CPU) $(BIN)/python -m pytest -n 2 --dist loadfile \
	  $(ROUNDING_TESTS) $(ARGS)

check: $(VENV)/dev.stamp  ## lint, format, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/dev.stamp  ## rewrite the files as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp  ## run a benchmark: `make bench NAME=projection ARGS=--help`
	$(BIN)/python -m benchmarks.$(NAME) $(ARGS)

theory: $(VENV)/all.stamp  ## execute the theorems' schedules
	$(BIN)/oneproj-paper theory $(ARGS)

interrupt: $(VENV)/dev.stamp  ## kill runs and sweeps again and again, compare bits
	$(ONE_THREAD) $(BIN)/python tests/training/test_interruptions.py
	$(ONE_THREAD) $(BIN)/python paper/tests/experiments/test_killed.py 10

api: $(VENV)/dev.stamp  ## accept the present public API as the recorded one
	$(BIN)/python tests/architecture/public_api.py --write

clean:  ## remove the environment and every cache
	rm -rf $(VENV) .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests paper benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# An extra of pyproject.toml, installed: `.venv/dev.stamp` stands for `.[dev]`.
# The paper's package is installed beside it.
$(VENV)/%.stamp: $(VENV)/python.stamp
	$(PIP_INSTALL) --no-build-isolation --editable '.[$*]' --editable ./paper
	@touch $@

# `oneproj-paper report` is tested in a real browser. It is installed where that needs no
# question (root and apt); elsewhere those tests skip, and say why.
$(VENV)/browser.stamp: $(VENV)/python.stamp
	@command -v chromedriver >/dev/null 2>&1 || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	  apt-get update -qq >/dev/null 2>&1 && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -qq -y chromium chromium-driver >/dev/null 2>&1; } || \
	  echo "No browser, and none could be installed: its tests will be skipped."
	@touch $@

$(VENV)/python.stamp: pyproject.toml paper/pyproject.toml constraints.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) hatchling
	@touch $@
