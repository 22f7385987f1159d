# The commands of this project. `make help` lists them.
# Everything runs in .venv, which the first command that needs it makes, with the pinned versions.

SHELL := bash -o pipefail

PYTHON ?= python3
BIN := .venv/bin
CLUSTERS ?= 4.9.7,5.5.0
PIPELINE ?= --plot build/pipeline.png
BENCH ?= --json build/benchmark.json --plot build/benchmark.png
SPARK_BENCH ?= --queues 1000

# Cached bytecode saves compiling, and pytest's rewriting of assertions, in each of hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
# Python compiles modules when they are imported. Most of the installed ones never are.
PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

.PHONY: help demo test test-all rest check check-long check-spark lint types unit uncovered long coverage dev-mode simulate \
	docs docs-serve docs-pages translations pictures release-check pythons other-pythons containers in-containers real spark spark-counts spark-kills faults behaviours behaviours-once behaviours-of-other-apis behaviours-on-older versions versions-short interoperation celery \
	million relay-kills replacements spark-matrix spark-clusters spark-lakehouse airflow java bench apis format clean

help:  ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rocketmq-py needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(PIP) "pip>=25.1"
	$(PIP) -c constraints.txt --group dev --editable .
	touch $@

java: .venv/installed
	@$(BIN)/python -m integration.java_home > /dev/null || true  # gets Java for Spark, or prints what to install

demo: java  ## Messages on the embedded broker; then a Spark pipeline that is stopped and killed
	$(BIN)/python examples/demo.py
	$(BIN)/python -m examples.spark_pipeline $(PIPELINE)

test: java  ## A first run: lint, types, the tests on the embedded broker, and the behaviours on one real broker
	@mkdir -p build
	@{ $(MAKE) --keep-going check check-spark behaviours-once; } 2>&1 | tee build/test.log || { $(ERRORS); exit 1; }
	@$(BIN)/python -m integration.run_summary build/test.log

test-all: test rest  ## All tests, also on real brokers where they are available

# Output of several jobs is mixed, so a failure ends with the errors of all tests that failed.
ERRORS = grep -aE '^(E  |FAILED |ERROR [^ ])' build/test.log | tail -n 200

rest: java  ## What `make test` leaves out
	@mkdir -p build
	@{ $(MAKE) --keep-going coverage; first=$$?; \
		EXAMPLES=30 SIMULATED_SEEDS=30 $(MAKE) --keep-going $(WITHOUT_BROKERS) || first=$$?; \
		$(MAKE) --jobs=3 --keep-going $(REAL_PARTS_OF_REST) && exit $$first; } 2>&1 | tee build/test.log || \
		{ $(ERRORS); exit 1; }

ROOM ?=

check: .venv/installed  ## Lint, types, unit and embedded-broker tests; ROOM=consumer: only those of one package
	$(MAKE) --jobs=3 lint types $(if $(filter spark,$(ROOM)),check-spark,unit)

# The parts of `rest` without real brokers. They run one by one, as each uses all cores, and before the tests on real
# brokers, which would slow them down.
WITHOUT_BROKERS = uncovered long dev-mode other-pythons

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

# Tests that take half of the time and rarely fail alone: examples, killed processes, large simulations and random
# workloads. `make check-long` runs them, and everything that `make check` runs only in part: behaviours through the
# asyncio and threads APIs, uvloop, tests marked `long`, and all examples of property tests. The tests that coverage
# measures run only there.
LONG = tests/test_examples.py tests/aio/test_loops.py tests/blocking/test_exit.py tests/blocking/test_fork.py \
	tests/behaviours/test_command_line.py tests/behaviours/test_killed_consumer.py \
	tests/behaviours/test_large_group.py tests/consumer/test_random_groups.py \
	tests/handoff/test_finalizers.py tests/handoff/test_interrupts.py tests/handoff/test_stress.py \
	tests/relay/test_relay.py tests/relay/test_store.py tests/simulation/test_workload.py tests/testing/test_simulation.py
CHECK_SPARK = tests/spark tests/behaviours/test_spark_reading.py tests/behaviours/test_spark_writing.py
# Three processes on two cores, because tests wait for a third of their time.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() * 3 // 2)')
PARALLEL = -q -n $(PROCESSES) --dist worksteal
WITHOUT_SPARK = $(PARALLEL) $(CHECK_SPARK:%=--ignore=%)
WITHOUT_LONG = $(WITHOUT_SPARK) $(LONG:%=--ignore=%)

# A package's own tests, the behaviours, and the tests of the whole.
ROOM_TESTS = $(or $(wildcard tests/$(ROOM)),$(error tests/$(ROOM) does not exist)) tests/behaviours $(wildcard tests/test_*.py)

unit: .venv/installed
	EXAMPLES=10 $(BIN)/python -m pytest $(WITHOUT_LONG) -m "not other_api and not long" $(if $(ROOM),$(ROOM_TESTS),tests)

COVERED = tests/test_settings.py tests/test_wrong_arguments.py tests/test_callback_arguments.py tests/protocol tests/client tests/producer tests/consumer tests/behaviours tests/aio tests/blocking
UNCOVERED = $(WITHOUT_LONG) $(COVERED:%=--ignore=%)

# Coverage runs all tests of the other files.
uncovered: .venv/installed
	$(BIN)/python -m pytest $(UNCOVERED) -m "hypothesis or other_api or long" tests

coverage: .venv/installed  ## Fails where a line of protocol/, client/, producer/ or consumer/ is reached by no unit test
	@mkdir -p build
	COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if hasattr(sys, "monitoring") else "ctrace")') \
		$(BIN)/python -m pytest $(WITHOUT_LONG) --cov --cov-report=term-missing:skip-covered --cov-fail-under=100 $(COVERED)

SIMULATED_SEEDS ?= 100

long: .venv/installed
	SIMULATED_SEEDS=$(SIMULATED_SEEDS) $(BIN)/python -m pytest $(PARALLEL) $(LONG)

check-long: long uncovered coverage  ## The tests that make check leaves out, except Spark: examples, kills, simulations, all APIs

SEEDS ?= 1000

simulate: .venv/installed  ## Random workloads on simulated clusters: SEEDS=1000, a second each
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

check-spark: java  ## The tests of the Spark format, on the embedded broker
	$(BIN)/python -m pytest -q -n auto --dist loadgroup $(CHECK_SPARK)

# The parts that differ most between Python versions: threads, processes, TLS, cancellation, and the shown signatures.
ON_EACH_PYTHON = tests/aio tests/blocking tests/client tests/handoff tests/remoting tests/test_apis.py tests/test_cancelling.py \
	tests/test_settings.py

pythons: .venv/installed  ## Types and tests on each supported Python that the machine has
	$(BIN)/python -m integration.pythons $(WITHOUT_SPARK) tests

DEV_MODE ?= tests/aio tests/blocking

dev-mode: .venv/installed  ## The asyncio and threads APIs in development mode; DEV_MODE=tests: everything
	EXAMPLES=10 PYTHONDEVMODE=1 PYTHONASYNCIODEBUG=1 $(BIN)/python -m pytest $(WITHOUT_SPARK) $(DEV_MODE)

# Only the newest that the machine has: `make pythons` tries all.
other-pythons: .venv/installed
	EXAMPLES=10 $(BIN)/python -m integration.pythons --others --newest --tests-only $(WITHOUT_SPARK) -m "not long" $(ON_EACH_PYTHON)

REAL = $(BIN)/python -m pytest -q -p integration.clusters.plugin --clusters $(CLUSTERS)
# Two processes, one per version, each with its own clusters.
BY_VERSION = -n 2 --dist loadgroup
FAULTS = $(wildcard integration/test_*faults.py integration/test_*kills.py) integration/test_replicas.py
SPARK = $(wildcard integration/test_spark_*.py)
SPARK_KILLS = integration/test_spark_kills.py
SPARK_COUNTS = integration/test_spark_counts.py integration/test_spark_pipeline.py
# The slowest first.
REAL_PARTS = interoperation celery faults spark-counts behaviours spark spark-kills
# These leave out slow tests that rarely fail alone: containers, kills of Spark, and the asyncio and threads APIs, whose
# behaviours run on the embedded broker. Celery and Spark depend on the version only through the behaviours.
REAL_PARTS_OF_REST = interoperation faults spark-counts-on-newest celery-on-newest behaviours-on-older versions-short \
	spark-on-newest

real: java  ## All tests on real brokers; APIS=all: each API on each version
	$(MAKE) --jobs=4 --keep-going $(REAL_PARTS)

spark: .venv/installed
	$(REAL) $(filter-out $(SPARK_COUNTS) $(SPARK_KILLS),$(SPARK))

spark-counts: .venv/installed
	$(REAL) $(SPARK_COUNTS)

spark-kills: .venv/installed
	$(REAL) $(SPARK_KILLS)

faults: .venv/installed
	$(REAL) -n 2 --dist loadfile $(filter-out $(SPARK),$(FAULTS))

BEHAVIOURS = tests/behaviours tests/integrations/test_kombu.py tests/integrations/test_faststream.py

# Two processes with clusters of both versions, because one version has more tests.
behaviours: .venv/installed
	$(REAL) -n 2 $(BEHAVIOURS)

NEWEST = $(lastword $(subst $(comma), ,$(CLUSTERS)))
comma := ,

# Five processes, because these tests wait most of the time.
behaviours-once: .venv/installed
	$(REAL) --clusters $(NEWEST) -n 5 -m "not other_api" $(BEHAVIOURS)

# The behaviours that behaviours-once leaves out.
behaviours-of-other-apis: .venv/installed
	$(REAL) --clusters $(NEWEST) -n 2 -m other_api $(BEHAVIOURS)

behaviours-on-older: .venv/installed
	$(REAL) --clusters $(CLUSTERS:%$(comma)$(NEWEST)=%) -n 4 -m "not other_api" $(BEHAVIOURS)

VERSIONS ?= $(shell $(BIN)/python -c "from integration.clusters.provider import OTHER_VERSIONS; print(*OTHER_VERSIONS)")
ON_VERSIONS = $(BIN)/python -m pytest -q -p integration.clusters.plugin
# Without the answers of 4.9.7 and 5.5.0 to single requests, which the embedded broker copies: other versions answer
# otherwise. And without Spark, whose tests depend on the broker only through the behaviours.
VERSIONED = $(filter-out $(wildcard tests/behaviours/test_broker_*_requests.py tests/behaviours/test_spark_*.py) \
	tests/behaviours/test_sql92.py,$(wildcard tests/behaviours/test_*.py))

versions: .venv/installed  ## The behaviours on further versions of the brokers, one by one: VERSIONS="4.3.2 5.4.0"
	@failed=; for version in $(VERSIONS); do \
		echo "RocketMQ $$version"; \
		$(ON_VERSIONS) --clusters $$version -n 2 -m "not other_api" $(VERSIONED) || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed on$$failed"; exit 1; }

# One or more behaviours of each kind of work, marked `versions`.
versions-short: .venv/installed  ## A part of make versions, in five minutes
	$(ON_VERSIONS) --clusters 4.3.2,4.6.1,4.8.0,5.1.4,5.4.0 $(BY_VERSION) -m "versions and not other_api" $(VERSIONED)

CELERY = integration/test_celery.py

interoperation: .venv/installed
	$(REAL) $(BY_VERSION) $(filter-out $(FAULTS) $(SPARK) $(CELERY),$(wildcard integration/test_*.py))

celery: .venv/installed
	$(REAL) $(CELERY)

# A part of `real` on the newest brokers only.
%-on-newest:
	$(MAKE) $* CLUSTERS=$(NEWEST)

containers: .venv/installed  ## As root: a container engine from apt, with images of RocketMQ
	$(BIN)/python -m integration.clusters.engine up

# A part of the tests on real brokers. ROCKETMQ_CLUSTERS=containers runs all of them on containers.
in-containers: .venv/installed
	ROCKETMQ_CLUSTERS=containers $(BIN)/python -m integration.clusters.engine run \
		$(REAL) integration/test_clusters.py tests/behaviours/test_sending.py integration/spark_clusters/test_images.py

million: java  ## A million messages through Spark and back, as batch and stream, on each version
	SPARK_COUNT=1000000 $(REAL) integration/test_spark_counts.py

relay-kills: .venv/installed  ## Kill relays a hundred times and targets for minutes (make rest: ten times, seconds)
	RELAY_KILLS=100 RELAY_AWAY=180 $(REAL) integration/test_relay_kills.py integration/test_relay_faults.py

replacements: java  ## Replace members of a group 20 times on each version (make rest: 4 times): 25 minutes
	REPLACEMENTS=20 $(REAL) -m "not other_api" tests/behaviours/test_replacing.py

AIRFLOW_CLUSTERS ?= embedded,5.5.0

airflow: .venv/installed  ## The Airflow provider in an environment with Airflow; AIRFLOW_CLUSTERS=embedded,5.5.0
	$(BIN)/python -m integration.airflow_environment --clusters $(AIRFLOW_CLUSTERS)

spark-matrix: java  ## The tests of Spark with older supported versions
	$(BIN)/python -m integration.spark_matrix

spark-clusters: java  ## Spark on clusters of processes, with a shipped environment and faults, on 5.5.0
	$(REAL) --clusters $(NEWEST) integration/spark_clusters

spark-lakehouse: java  ## Pipelines between topics and tables of Delta and Iceberg, with kills: SPARK_LAKEHOUSE_KILLS=50, on 5.5.0
	$(REAL) --clusters $(NEWEST) integration/spark_lakehouse

.venv/bench: .venv/installed
	$(PIP) -c constraints.txt --group bench
	touch $@

bench: .venv/bench java  ## Benchmarks with the Java, Go and official Python clients, on a real broker
	$(BIN)/python -m integration.benchmarks.run $(BENCH)
	$(BIN)/python -m integration.benchmarks.spark $(SPARK_BENCH)
	$(BIN)/python -m integration.benchmarks.relay

docs: .venv/installed  ## The documentation as a site in build/site, in Chinese in build/site/zh; warnings are errors
	$(BIN)/python docs/drawings/draw.py
	$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees docs build/site
	$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees-zh -D language=zh_CN docs build/site/zh

pictures: .venv/installed  ## Run the commands shown in README.md and the documentation, and draw their output
	$(BIN)/python examples/pictures.py

docs-pages: docs  ## Load each page of the documentation in headless Chromium, and report errors
	$(BIN)/python -m integration.site_pages $(PAGES)

SITE_PORT ?= 8000

docs-serve: docs  ## Build the site and serve it at http://127.0.0.1:8000; SITE_PORT=8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site $(SITE_PORT)

translations: .venv/installed  ## Update the Chinese catalogues from the English pages, and print the pages that lag behind
	$(BIN)/python docs/extensions/catalogues.py

.venv/release: .venv/installed
	$(PIP) -c constraints.txt --group release
	touch $@

RELEASE ?=

release-check: .venv/release  ## Build the distributions and try them in empty environments on each Python; uploads nothing
	$(BIN)/python -m integration.release_check $(RELEASE)

apis: .venv/installed  ## Generate the classes of the asyncio and threads APIs, and the pages and types that list settings and names
	$(BIN)/python -m tests.generate_apis
	$(BIN)/python -m tests.generate_settings
	$(BIN)/python -m tests.test_public_members
	$(BIN)/python -m tests.generate_names
	$(BIN)/python -m tests.generate_java_names

format: .venv/installed  ## Format the code and sort the imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove everything that the other commands created
	test ! -d build/engine || $(BIN)/python -m integration.clusters.engine down
	find docs/locale -name '*.mo' -delete
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis integration/.cache build dist
