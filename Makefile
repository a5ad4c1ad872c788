# make demo    run the main job on real environments
# make test    set up and pass everything
# make lint    ruff, mypy strict, pyright
# make bench   ours against the peer and against calls by hand

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
STRANGERS := $(VENV)/.strangers
# By its exact version and first: a bare torch would bring gigabytes of CUDA libraries.
TORCH := torch==2.13.0
JOBS ?= 2

.PHONY: demo test lint format clean

# Strangers' plugins, installed as a stranger would.
$(STRANGERS): $(READY) $(wildcard examples/arrayferry-*/*.py examples/arrayferry-*/pyproject.toml)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--force-reinstall --no-deps --no-build-isolation ./examples/arrayferry-*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		./examples/arrayferry-sparse ./examples/arrayferry-tensorflow ./examples/arrayferry-mlx
	@touch $@

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a minute or two)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(STRANGERS)
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
