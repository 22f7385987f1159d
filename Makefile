# The commands of this project. `make help` lists them.
# Everything runs in .venv, which the first command that needs it makes, with the pinned versions.

PYTHON ?= python3
BIN := .venv/bin
CLUSTERS ?= 4.9.7,5.5.0
# Most tests on real brokers wait. Two processes, each with brokers of its own, take about half the time of one;
# the long files come first, the short ones fill up the end.
SIDE_BY_SIDE ?= 2
PIPELINE ?= --plot build/pipeline.png
BENCH ?= --json build/benchmark.json --plot build/benchmark.png
SPARK_BENCH ?= --queues 1000

.PHONY: help demo test check lint types unit real spark-matrix java bench format clean

help:  ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rocketmq-py needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group dev --editable .
	touch $@

java: .venv/installed
	@$(BIN)/python -m integration.java_home > /dev/null || true  # gets one for Spark, or says what to install

demo: java  ## Messages on the embedded broker; then a Spark pipeline that is stopped and killed
	$(BIN)/python examples/demo.py
	$(BIN)/python -m examples.spark_pipeline $(PIPELINE)

test: check real  ## All tests, with real brokers wherever they can be had

check: lint types unit  ## Lint, types, unit and embedded-broker tests

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

unit: java
	$(BIN)/python -m pytest -q -n auto --dist loadgroup tests

real: java  ## The behaviours on real brokers, and what else needs them
	$(BIN)/python -m pytest -q -n $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder \
		-p integration.clusters.plugin --clusters $(CLUSTERS) integration tests/behaviours

spark-matrix: java  ## The tests of Spark, with the older versions that work too
	$(BIN)/python -m integration.spark_matrix

.venv/bench: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group bench
	touch $@

bench: .venv/bench java  ## Measure beside the Java, Go and official Python clients, on a real broker
	$(BIN)/python -m integration.benchmarks.run $(BENCH)
	$(BIN)/python -m integration.benchmarks.spark $(SPARK_BENCH)

format: .venv/installed  ## Format the code and sort the imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove everything that the other commands made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis integration/.cache build dist
