# Every target sets up what it needs, so that a fresh clone needs Python 3.11, make and a package index.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Run, not only looked up: a version manager leaves names on PATH that start nothing. The system's own
# comes first: it is built with optimisations that others often leave out, and a fifth faster.
PYTHON ?= $(shell for p in /usr/bin/python3.11 python3.11 python3; do \
	$$p -c 'import ensurepip, venv' >/dev/null 2>&1 && echo $$p && exit; done; \
	for p in python3.11 python3; do $$p -c '' >/dev/null 2>&1 && echo $$p && exit; done)
WORKERS ?= 2
PYTEST_ARGS ?=
NAME ?=
ROWS ?=
LOCK_ARGS ?=

PYTEST := $(BIN)/python -m pytest

# The crash tests lose power in software: a disk that really waits would only make them slow.
SHM := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 2>/dev/null && echo /dev/shm)
export PYTEST_DEBUG_TEMPROOT ?= $(or $(SHM),/tmp)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-kafka java java-build clients bench lint format lock soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## create .venv with the locked versions

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "install: no Python: apt-get install python3.11 python3.11-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "install: $(PYTHON) is older than 3.11: apt-get install python3.11 python3.11-venv, or PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		$(PYTHON) -c 'import sys; print("install: the venv module is missing: apt-get install python%d.%d-venv" % sys.version_info[:2])' >&2; exit 1; }
	@echo "install: locked packages into $(VENV)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes -r requirements.lock
	@# The lock holds the build backend too: building in isolation would fetch an unlocked one.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: install java ## produce a changelog, plan, compact on Spark, verify, read the table
	@bash scripts/demo.sh

test: install java ## every test but tests/kafka; WORKERS=2, PYTEST_ARGS="-k name"
	@echo "test: tests/ without tests/kafka, $(WORKERS) workers"
	@$(PYTEST) tests --ignore=tests/kafka -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# The first test waits for Maven to fetch Kafka's jars, hence the longer limit.
test-kafka: install java-build clients ## tests/kafka, against a real Kafka
	@echo "test-kafka: tests/kafka"
	@$(PYTEST) tests/kafka -n $(WORKERS) --dist loadfile --timeout=900 $(PYTEST_ARGS)

java: ## check for Java 17; install it if root on Debian
	@sh scripts/ensure-java.sh run

java-build: ## check for Java 17 with javac, and Maven; install them if root on Debian
	@sh scripts/ensure-java.sh build

clients: ## check for kcat, Node and npm; install them if root on Debian
	@sh scripts/ensure-clients.sh

bench: install java ## benchmarks/bench_NAME.py, or all of them; NAME=<subject>, ROWS="text;text"
	@set -e; for file in benchmarks/bench_$(or $(NAME),*).py; do \
		echo "bench: $$file"; $(BIN)/python "$$file" --rows "$(ROWS)"; done
	@$(BIN)/python benchmarks/report.py

lint: install ## ruff format --check, ruff check, mypy --strict, lint-imports
	@echo "lint: ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "lint: ruff check"
	@$(BIN)/ruff check .
	@echo "lint: mypy --strict"
	@$(BIN)/mypy --strict src tests benchmarks examples
	@echo "lint: lint-imports"
	@$(BIN)/lint-imports --no-logo

format: install ## let ruff format the code and fix what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# In an environment of its own, so that the tool is not among what it locks. Without local wheels:
# their hashes would be of no use elsewhere. The oldest Python decides, so that all can install it.
lock: ## resolve requirements.lock anew; LOCK_ARGS=--upgrade for newer versions
	@echo "lock: requirements.lock"
	@test -x build/lock/bin/pip-compile || { python3.11 -m venv --clear build/lock && \
		build/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools==7.6.2; }
	@env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/pip-compile --quiet \
		--extra avro --extra dev --extra iceberg --extra kafka-tests --extra spark --extra spark-connect --build-deps-for editable --strip-extras --generate-hashes \
		--no-annotate --no-emit-options $(LOCK_ARGS) --output-file requirements.lock pyproject.toml
	@! grep -nE '://|^ *-[^-]|^--' requirements.lock

soak: install java-build ## random tests with many examples: hours, not minutes
	@echo "soak: tests/property, tests/crash, Hypothesis profile nightly"
	@$(PYTEST) tests/property tests/crash -n $(WORKERS) --hypothesis-profile=nightly --timeout=0 $(PYTEST_ARGS)
	@echo "soak: fifty pipelines, 2,000 records each, killed a hundred times"
	@SILTSTONE_PIPELINE_RECORDS=2000 $(PYTEST) tests/e2e/test_exactly_once.py --timeout=0 $(PYTEST_ARGS)
	@echo "soak: 5,000 random logs against Kafka's cleaner"
	@SILTSTONE_SOAK=5000 $(PYTEST) tests/kafka/test_cleaner_differential.py --timeout=0 $(PYTEST_ARGS)
	@echo "soak: a broker under load, killed every 30 s: 10 minutes, 500 connections, 2,000 partitions"
	@SILTSTONE_SOAK_SECONDS=600 SILTSTONE_SOAK_CONNECTIONS=500 SILTSTONE_SOAK_PARTITIONS=2000 \
		$(PYTEST) tests/e2e/test_broker_soak.py --timeout=0 $(PYTEST_ARGS)

clean: ## remove caches and build output; .venv stays
	@echo "clean: caches and build output"
	@rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
