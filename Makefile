# Everything a developer does here. `make` alone lists it.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
LINT_PATHS := $(wildcard tideline capture publish spark_jobs console plugins dags devtools examples tests)

# Where it is set, every process compiles all it imports again: Airflow starts twice as slowly.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup servers demo cluster s3 bigquery test tests long matrix check quick-tests lint faults fuzz bench wheels images constraints sbom licences clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv; fetch Java if it is missing, and the jars of Delta and S3
	@$(BIN)/python -m devtools.services.prepare

$(READY): pyproject.toml $(wildcard requirements/*.txt) scripts/setup
	@scripts/setup $(VENV)
	@touch $@

# Tests use the archive of Spark's classes where it is; they start Spark too seldom to make one.
servers: $(READY)
	@$(BIN)/python -m devtools.services.prepare --no-archive --with mariadb --with mysql --with bigquery

demo: setup ## the main job on a sample shop, live; SOURCE=mariadb, STORAGE=files, TARGET=iceberg or bigquery, STAY=1 stays up without a terminal
	@$(BIN)/python -m devtools demo $(if $(SOURCE),--source $(SOURCE)) $(if $(STORAGE),--storage $(STORAGE)) $(if $(TARGET),--target $(TARGET)) $(if $(STAY),--stay)

cluster: setup ## a standalone Spark cluster on loopback, until Ctrl-C; WORKERS=…, PORT=… and FOLDER=… set it
	@$(BIN)/python -m devtools cluster $(if $(WORKERS),--workers $(WORKERS)) $(if $(PORT),--port $(PORT)) $(if $(FOLDER),--folder $(FOLDER))

s3: setup ## an S3 server on loopback, until Ctrl-C; BUCKET=…, PORT=… and FOLDER=… set it
	@$(BIN)/python -m devtools s3 $(if $(BUCKET),--bucket $(BUCKET)) $(if $(PORT),--port $(PORT)) $(if $(FOLDER),--folder $(FOLDER))

bigquery: $(READY) ## an emulator of BigQuery on loopback, until Ctrl-C; PORT=… and FOLDER=… set it
	@$(BIN)/python -m devtools.services.prepare --no-archive --with bigquery
	@$(BIN)/python -m devtools bigquery $(if $(PORT),--port $(PORT)) $(if $(FOLDER),--folder $(FOLDER))

# Four processes on two cores: what waits for servers leaves the cores to what merges.
SIDE_BY_SIDE := --numprocesses=4 --dist=loadscope --no-loadscope-reorder --max-worker-restart=0

test: servers ## every test but the long ones, in about 45 minutes
	@$(MAKE) --no-print-directory --jobs=2 lint tests

tests:
	$(BIN)/python -m tests.suite -m "not long" $(SIDE_BY_SIDE) --durations=40

long: servers ## tests that take minutes each, and long forms of those that draw their cases
	@$(BIN)/python -m devtools.services.prepare --no-archive --with chromium
	PARITY_HISTORIES=20 VERIFY_ROUNDS=10 SIMULATED_RUNS=1000 RACED_COMMITS=1000 RACED_MERGES=1000 \
		$(BIN)/python -m tests.suite -m "long or drawn" $(SIDE_BY_SIDE) --durations=40

check: setup ## format, types, imports, quick unit and property tests: under a minute
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint quick-tests

quick-tests:
	$(BIN)/pytest tests/unit tests/properties -m "not long and not thorough" --numprocesses=3 --dist=loadscope --durations=12

lint:
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	scripts/types $(BIN)/mypy $(LINT_PATHS)
	$(BIN)/lint-imports

matrix: servers ## the tests of Spark and Airflow with the oldest and the newest versions; RUN=… picks one
	@$(BIN)/python -m devtools.matrix $(RUN)

faults: servers ## servers and jobs under every fault, with tables of counts; ROUNDS=… and JOBS=… set its length
	@$(BIN)/python -m tests.faults
	@STORE_AWAY_S=60 $(BIN)/pytest tests/faults/test_store_away.py

fuzz: $(READY) ## feed the decoders with damage, for SECONDS=…; TARGET=… picks one
	@$(BIN)/python -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET))

bench: setup ## measure, as JSON lines; NAME=… picks one, ROWS=… sets its size
	@$(BIN)/python -m devtools.benchmarks $(NAME) $(if $(ROWS),--rows $(ROWS))

wheels: $(READY) ## build what is installed elsewhere: dist/tideline_cdc-*.whl, dist/airflow_provider_tideline-*.whl
	@rm -rf dist
	@$(BIN)/hatchling build --target wheel --directory dist
	@cd plugins && ../$(BIN)/hatchling build --target wheel --directory ../dist

images: setup ## pin images to the digests that their registries have now; CHECK=1 only compares
	@$(BIN)/python -m devtools.supply.images $(if $(CHECK),--check)

constraints: setup ## resolve requirements/*.in again: versions and hashes; constraints.txt has the versions
	@scripts/lock $(BIN)/uv --upgrade

sbom: setup ## write what all of this is made of: dist/sbom.cdx.json (CycloneDX)
	@mkdir -p dist
	@$(BIN)/python -m devtools.supply.sbom dist/sbom.cdx.json

licences: setup ## list the licence of every package, and write docs/LICENCES.md; fails where one may not be used
	@$(BIN)/python -m devtools.supply.licence_page

clean: ## remove what was made here; the cache folder stays
	rm -rf $(VENV) .run dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
