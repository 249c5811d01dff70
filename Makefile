# README's two commands: `make demo` and `make test`. Both build their own virtual environment in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast check docs wheel-test format bench results clean

.venv/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"sasr needs Python 3.11 or newer, this is {v[0]}.{v[1]}; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/demo: .venv/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[demo]'
	@touch $@

.venv/dev: .venv/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ .venv/demo

.venv/docs: .venv/dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

# Small networks, so that it takes minutes on two cores; all else is the default.
demo: .venv/demo          ## three seeds of MountainCar, ends with the paths of the curve and of the run folder
	$(BIN)/sasr train MountainCar --seeds 3 --steps 22000 --set agent.hidden=64,64

test: .venv/dev           ## everything but what needs a GPU
	$(BIN)/python -m pytest -n 2 -m "not gpu"

test-fast: .venv/dev      ## the quick ones: under three minutes on two idle cores
	$(BIN)/python -m pytest -n 2 -m "not gpu and not slow and not browser and not ray"

check: .venv/dev          ## format, lint, types, folder order
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/docs          ## the documentation, in docs/_build/html; a warning is an error; then a look at it in Chromium
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	SASR_DOCS_SITE=docs/_build/html $(BIN)/python -m pytest -q tests/test_docs_site.py

wheel-test: .venv/python  ## build the wheel, and try it in an empty environment away from the sources
	.ci/try_wheel $(BIN)/python

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev          ## side-by-side speed figures, JSON under benchmarks/results
	$(BIN)/python -m benchmarks.estimators
	$(BIN)/python -m benchmarks.environments
	$(BIN)/python -m benchmarks.throughput
	$(BIN)/python -m benchmarks.costs

results: .venv/dev        ## the generated parts of docs/ and README.md, from the folders results/ and benchmarks/results/
	$(BIN)/python -m pages

clean:
	rm -rf .venv runs build dist docs/_build docs/diary .pytest_cache .mypy_cache .ruff_cache .hypothesis
