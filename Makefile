# make demo    run the main job on real environments
# make test    set up and pass everything
# make lint    ruff, mypy strict, pyright
# make bench   ours against the peer and against calls by hand
# make fuzz, make downstream, make matrix: see below

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
STRANGERS := $(VENV)/.strangers
GYMNAX := .venv-gymnax/.ready
# By its exact version and first: a bare torch would bring gigabytes of CUDA libraries.
TORCH := torch==2.13.0
JOBS ?= 2

.PHONY: demo test downstream matrix fuzz bench lint format clean

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

# Clients that need an environment of their own, laid over the main one.
$(GYMNAX): $(READY)
	$(PYTHON) -m venv .venv-gymnax
	.venv-gymnax/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > .venv-gymnax/place
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$(cat .venv-gymnax/place)/outer.pth"
	.venv-gymnax/bin/python -m pip install --quiet --disable-pip-version-check gymnax==1.0.1
	@touch $@

downstream: $(GYMNAX)
	.venv-gymnax/bin/python -m pytest tests/downstream

# The adapters' tests with each version of Gymnasium that is supported.
GYMNASIUMS := 1.1.1 1.2.3 1.3.0 1.4.0
matrix: $(READY)
	@for version in $(GYMNASIUMS); do \
		echo "gymnasium $$version"; \
		test -d .overlays/$$version || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--no-deps --target .overlays/$$version gymnasium==$$version || exit 1; \
		PYTHONPATH=.overlays/$$version $(BIN)/python -m pytest -q -n $(JOBS) tests/gym_adapters || exit 1; \
	done

fuzz: $(READY)
	$(BIN)/python -W ignore tests/adversaries/fuzz.py

bench: $(READY)
	$(BIN)/python benchmarks/run.py

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venv-gymnax .overlays build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
