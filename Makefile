BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint bench

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/ready ## load a year of flights in several runs, one of them killed half-way
	$(BIN)/python -m scripts.demo

test: lint ## all tests; sets itself up
	$(BIN)/python -m pytest

test-long: .venv/ready ## the same protocol tests for many minutes
	GLUE_WATERMARKS_LONG=1 $(BIN)/python -m pytest tests/protocol --timeout 3600

lint: .venv/ready ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready ## what the package costs beside the same raw boto3 calls
	$(BIN)/python -m benchmarks.overhead

.venv/ready: setup.cfg .ci/constraints.txt .ci/setup
	.ci/setup
