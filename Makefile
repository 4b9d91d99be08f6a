# Two commands for a newcomer: `make demo` and `make test`. Everything lives in .venv/ and .nsys/ inside this folder.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build of torch is enough for the tests; on a GPU machine set TORCH=torch or install your own build first.
TORCH ?= torch==2.13.0
PYTEST_ARGS ?=

.PHONY: setup demo test lint clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH="$(TORCH)" sh scripts/setup.sh
	@touch $@

demo: setup
	$(BIN)/python scripts/demo.py

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .nsys demo-output build .pytest_cache .mypy_cache .ruff_cache
