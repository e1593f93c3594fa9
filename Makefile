BIN := .venv/bin
PARTS := $(shell .ci/shard names)
.DEFAULT_GOAL := help
# Hundreds of processes that tests start would each compile what they import.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test $(PARTS) collected small-spark-3.3 small-spark-4.1 test-all test-long test-busy test-matrix mutants lint audit docs bench bench-files bench-rows bench-load bench-writes bench-scale

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/demo-ready ## load a year of flights in several runs, one of them killed half-way
	$(BIN)/python -m scripts.demo

# Three at a time: with two, the cores are idle while tests wait; more than three only take turns.
test: .venv/ready ## the tests, and a small set on the Sparks of Glue 4.0 and 6.0, without groups that passed and are unchanged; sets itself up
	@.ci/spark-classes
	@$(MAKE) --no-print-directory --jobs 3 --keep-going $(PARTS) small-spark-3.3 small-spark-4.1 lint collected
	@.ci/shard check
	@.ci/small/run report

$(PARTS): .venv/ready
	@.ci/shard $@

collected: .venv/ready
	@.ci/shard collect

small-spark-3.3 small-spark-4.1: .venv/ready
	@.ci/small/run $(@:small-%=%)

test-all: .venv/ready ## everything that make test can run, changed or not; writes to .ci/passed which groups passed
	.ci/all

test-long: .venv/ready ## all random cases and long variants, and the groups that make test leaves out: hours [ROOMS="sinks protocol"]
	.ci/long $(ROOMS)

test-busy: .venv/ready ## all tests beside 8 busy processes: an hour each time [TIMES=3]
	.ci/busy $(or $(TIMES),3)

test-matrix: ## what uses Spark, on Spark 3.3, 4.1 and 4.3; two hours (PYTHON310=PATH, PYTHON313=PATH name the Pythons)
	@failed=0; for spark in spark-3.3 spark-4.1 spark-4.3; do .ci/matrix $$spark || failed=1; done; exit $$failed

mutants: .venv/ready ## random faults, and whether tests notice: SEED=1 or ALL=1 [MODULES="rows report/page.py"] [N=20] [JOBS=1] [RESULTS=FILE]
	$(BIN)/python -m tests.mutants \
		$(if $(ALL),--all,--seed $(or $(SEED),$(error say which, as in make mutants SEED=1)) --most $(or $(N),20)) \
		--jobs $(or $(JOBS),1) $(if $(RESULTS),--results $(RESULTS)) $(if $(TESTS),--tests $(TESTS)) -- $(MODULES)

lint: .venv/ready ## style, spelling, prose, links and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell README.md docs scripts tests terraform benchmarks setup.cfg Makefile
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/docs/test_prose.py tests/docs/test_links.py
	.ci/types

audit: .venv/ready ## what CI installs as CycloneDX (build/sbom.json), and known vulnerabilities of it
	python3 -m venv .venv/audit
	.venv/audit/bin/pip install --quiet 'cyclonedx-bom >= 7, < 8' 'pip-audit >= 2.9, < 3'
	@mkdir -p build
	.venv/audit/bin/cyclonedx-py requirements .ci/constraints.txt --output-file build/sbom.json
	.venv/audit/bin/pip-audit --requirement .ci/constraints.txt --require-hashes --disable-pip --strict

docs: .venv/ready ## the documentation, as build/docs/index.html
	$(BIN)/python -m sphinx -W -q -b html docs build/docs

bench: .venv/ready ## what the package costs beside raw calls of boto3 and sqlite3, and how long the README's first minute takes
	missed=0; for part in overhead one_file first_minute; do $(BIN)/python -m benchmarks.$$part || missed=1; done; exit $$missed

bench-files: .venv/bench ## listing, finding and reading files beside Spark, dlt and others; an hour or two
	@mkdir -p benchmarks/out; rm -f benchmarks/out/*.log; missed=0; \
	for part in listing new_files reading checks; do \
		$(BIN)/python -m benchmarks.$$part >benchmarks/out/$$part.log || missed=1; \
		cat benchmarks/out/$$part.log; \
	done; \
	$(BIN)/python -m benchmarks.reading --objects 100000 --rounds 1 >benchmarks/out/reading-100000.log || missed=1; \
	cat benchmarks/out/reading-100000.log; \
	grep -h '^goal:' benchmarks/out/*.log; exit $$missed

bench-rows: .venv/bench ## changed rows of PostgreSQL and Parquet beside a read of all and dlt; half an hour
	$(BIN)/python -m benchmarks.rows

bench-load: .venv/bench ## first loads of PostgreSQL beside ConnectorX, ADBC, dlt and spark.read.jdbc; an hour
	$(BIN)/python -m benchmarks.first_load

bench-writes: .venv/ready ## staging and publishing beside a bare write; half an hour
	$(BIN)/python -m benchmarks.writing

bench-scale: .venv/bench ## a hundred million known objects on Spark: memory, and time for each key; some hours, 5 GB of disk
	$(BIN)/python -m benchmarks.scale

# dlt and the others have a Python of their own: dlt's S3 client needs another botocore than boto3 does.
.venv/bench: .venv/ready
	grep -oE '^[^ ]+==[^ ]+' .ci/constraints.txt >.venv/versions.txt
	$(BIN)/pip install --quiet --constraint .venv/versions.txt --requirement .ci/requirements/bench.txt
	$(BIN)/python -m venv .venv/dlt
	.venv/dlt/bin/pip install --quiet 'dlt[filesystem] >= 1.31, < 2' pyarrow psycopg2-binary 'sqlalchemy < 2.1' 'connectorx >= 0.4' 'adbc-driver-postgresql >= 1'
	touch $@

.venv/demo-ready: .ci/demo.txt .ci/constraints.txt .ci/install-locked
	.ci/setup demo

.venv/ready: setup.cfg .ci/constraints.txt .ci/checkov.txt .ci/setup .ci/install-locked
	.ci/setup
