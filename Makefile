# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Small networks want one thread: two cost six times the CPU time on two cores.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= agg

.PHONY: demo test check format bench clean

demo: $(VENV)/.installed
	$(BIN)/pullback demo --output demo-report.html --force

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[all]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	touch $@ $(VENV)/.installed
