# The newest that all libraries have builds for, if it is on the PATH and starts: the newest NumPy and JAX have given up
# older ones. constraints.txt has versions for those too.
NEWEST_PYTHONS ?= 3.14 3.13
ifndef PYTHON
PYTHON := $(firstword $(foreach version,$(NEWEST_PYTHONS), \
	$(shell python$(version) -c "import sys; print(sys.executable)" 2>/dev/null)) python3)
endif
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSIC := $(VENV)/.classic
EXAMPLES := $(VENV)/.examples
GYMNAX := .venv-gymnax/.ready
VALUES := .venv-values/.ready
BRIDGES := .venv-bridges/.ready
FUNCTIONAL := .venv-functional/.ready
AUDIT := .venv-audit/.ready
# Installed first, by exact version: plain torch would bring gigabytes of CUDA libraries. Where pip does not find a
# CPU build by itself, TORCH_INDEX is the address of an index that has one.
TORCH_INDEX ?=
# For Python 3.15 there are builds from 2.15 on. Where pip may not take that version, and for other packages that have
# no build for it, conftest.py skips the tests that need them.
TORCH := 'torch==2.13.0; python_version < "3.12"' 'torch==2.15.0; python_version >= "3.12"' \
	$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
# The extra `all` without PyTorch.
EXTRAS := jax,dask,warp,distributed,gym,video,onnx,cli
PIP := -m pip install --quiet --disable-pip-version-check
# pip before 25.1 does not know the groups of pyproject.toml.
UPGRADE_PIP := $(PIP) --upgrade 'pip>=25.1'
# The first line of a recipe that makes an environment, before anything is installed.
NEW_ENOUGH = @$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("arrayferry needs Python 3.11 or newer, \
	and $(PYTHON) is " + sys.version.split()[0] + ". Name a newer one: make PYTHON=python3.13 $(MAKECMDGOALS)")'
JOBS ?= 2
# The tests of a file run in one process, so that their cluster or environment is made once.
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# The tests start many processes, which load faster what Python has compiled before. PyTorch takes one thread in each:
# its threads wait for each other in loops, which takes ten times as long where processes share the processors.
# A test that hangs prints where all threads are after ten minutes, and ends its process.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) $(HANGS)

.DEFAULT_GOAL := help
.PHONY: help demo check test settings orders lazy test-all alone pythons newest docs play pages package rehearsal release workflows downstream bridges suites suites-all translated audit-all curves trainers matrix floor drawn histories fuzz mutants bench bench-dask lint lint-docs format clean

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The environments in examples, installed as a third-party package is.
$(CLASSIC): $(READY) $(wildcard examples/arrayferry-classic/pyproject.toml examples/arrayferry-classic/*.py examples/arrayferry-classic/*/*.py)
	$(BIN)/python $(PIP) --force-reinstall --no-deps --no-build-isolation ./examples/arrayferry-classic
	@touch $@

# The example plugins, installed as third-party plugins are. TensorFlow has no build for Python 3.15.
PLUGINS := ./examples/arrayferry-sparse ./examples/arrayferry-mlx \
	'./examples/arrayferry-tensorflow; python_version < "3.15"'
$(EXAMPLES): $(READY) $(wildcard examples/arrayferry-*/*.py examples/arrayferry-*/pyproject.toml) | $(CLASSIC)
	@echo "Installing the example plugins, with TensorFlow: 1.5 GB on disk"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--force-reinstall --no-deps --no-build-isolation $(PLUGINS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PLUGINS)
	@touch $@

$(READY): pyproject.toml constraints.txt
	$(NEW_ENOUGH)
	@echo "1 of 3: creating $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(UPGRADE_PIP)
	@echo "2 of 3: installing PyTorch, 0.8 GB on disk"
	$(BIN)/python $(PIP) $(TORCH) || $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 15))'
	@echo "3 of 3: installing arrayferry, the other libraries and the tools, 2 GB on disk; this takes a minute or two"
	$(BIN)/python $(PIP) -c constraints.txt -e '.[$(EXTRAS)]' --group dev
	@touch $@

demo: $(READY)  ## train agents on real environments, and draw their learning curves
	SDL_VIDEODRIVER=dummy $(BIN)/python examples/demo.py

# XLA compiles in half the time what it optimises less. It ends the process if it does not know a flag, and that of
# JAX 0.12, which Python 3.12 and newer get, knows these no more.
FAST_XLA = JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
	XLA_FLAGS="$$($(BIN)/python -c 'import sys; print("" if sys.version_info >= (3, 12) else \
		"--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")')"

# A first check, in an environment of its own that is made in a minute. Dask, functions that cross and plugins that are
# installed take too long for it.
CHECK := .venv-check
CHECKED := tests/core tests/plugins tests/docs/test_packaging.py tests/docs/test_tools.py core plugins
UNCHECKED := arrayferry/test_discovery arrayferry/test_lazy arrayferry_functions/test_functions \
	arrayferry_kit/test_kit arrayferry_streams/test_stream
check: BIN := $(CHECK)/bin
check: $(CHECK)/.ready  ## check style, types, and core and plugins with NumPy, PyTorch and JAX, in a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy core plugins
	@$(FAST_XLA) $(PYTEST) -q -r fE $(CHECKED) $(UNCHECKED:%=--ignore=tests/core/%.py)

$(CHECK)/.ready: pyproject.toml constraints.txt
	$(NEW_ENOUGH)
	@echo "Installing NumPy, PyTorch and JAX into $(CHECK)"
	$(PYTHON) -m venv $(CHECK)
	$(CHECK)/bin/python $(UPGRADE_PIP)
	$(CHECK)/bin/python $(PIP) --no-compile $(TORCH)
	$(CHECK)/bin/python $(PIP) --no-compile -c constraints.txt -e '.[jax,gym,distributed,cli]' --group check
	@touch $@

# The example scripts and plugins are for `make test-all`.
WITHOUT_PLUGINS := $(patsubst %,--ignore=examples/arrayferry-%,sparse mlx tensorflow)
test: $(EXAMPLES)  ## set everything up, and run the tests
	$(FAST_XLA) $(PYTEST) $(WITHOUT_PLUGINS)

# Settings of libraries that hold for all that a user runs: see tests/conftest.py. Those with commas hold together.
SETTINGS ?= x64 strict no_grad rbg,rank,float64,seterr
settings: $(EXAMPLES)  ## run the tests of core, plugins and functional environments under settings that users choose
	@for setting in $(SETTINGS); do \
		echo "ARRAYFERRY_SETTING=$$setting"; \
		ARRAYFERRY_SETTING=$$setting $(FAST_XLA) $(PYTEST) -q tests/core tests/plugins \
			tests/gym_adapters/arrayferry_envs || exit 1; \
	done

# Modules, and the tests in each, by pytest-random-order. `make orders SEEDS=7` runs an order again.
SEEDS ?= $(shell shuf -n 3 -i 1-99999)
orders: $(EXAMPLES)  ## run the tests in three random orders
	@for seed in $(SEEDS); do \
		echo "The order of SEEDS=$$seed"; \
		$(FAST_XLA) $(PYTEST) -q $(WITHOUT_PLUGINS) --random-order-seed=$$seed || exit 1; \
	done

lazy: $(EXAMPLES)  ## run the tests with lazy imports, which Python 3.15 has
	ARRAYFERRY_LAZY_IMPORTS=1 $(FAST_XLA) $(PYTEST) $(WITHOUT_PLUGINS)

# The long tests: see the marker in pyproject.toml. Agents learn, and physics is compared, in what XLA has optimised fully.
OPTIMISED := tests/docs/test_example_agents.py tests/gym_adapters/arrayferry_envs/test_functional_physics.py
test-all: test alone  ## run the long tests too, and each package alone
	$(FAST_XLA) $(PYTEST) -m long --hypothesis-profile test-all $(OPTIMISED:%=--ignore=%)
	$(PYTEST) -m long $(OPTIMISED)

# The tests of each package where all packages that it does not need are missing.
alone: $(EXAMPLES)  ## test each package without those that it does not need
	$(FAST_XLA) PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 JOBS=$(JOBS) $(BIN)/python tools/alone.py -- $(HANGS)

# Sets the shell's $found to the interpreter of Python $version, or to nothing. The names that pyenv puts on the PATH may
# start nothing, so its versions are tried too.
find_python = for each in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
	found=$$($$each -c 'import sys; print(sys.executable)' 2>/dev/null) && break; done

# The tests with each supported Python, in an environment for each. `make pythons PYTHONS=3.12` runs them with one.
# For 3.14, TensorFlow has a release candidate only: see constraints.txt. 3.15 also runs them with lazy imports.
PYTHONS ?= 3.11 3.12 3.13 3.14 3.15
pythons:  ## test with each supported Python
	@missing=; \
	for version in $(PYTHONS); do \
		$(find_python); \
		if test -z "$$found"; then \
			echo "There is no Python $$version on the PATH or in pyenv."; \
			missing="$$missing $$version"; \
			continue; \
		fi; \
		echo "Python $$version: $$found"; \
		$(MAKE) test PYTHON=$$found VENV=.venv-$$version || exit 1; \
		test $$version != 3.15 || $(MAKE) lazy PYTHON=$$found VENV=.venv-$$version || exit 1; \
	done; \
	if test "$$missing"; then echo "Not tested:$$missing. PYTHONS names those to test."; exit 1; fi

# The tests with the newest version of each library, which is not pinned, in the first of NEWEST_PYTHONS that is here.
NEWEST := .venv-newest
newest: $(NEWEST)/.ready  ## test with the newest version of each library
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(NEWEST)/bin/python -m pytest $(PARALLEL) -p no:cacheprovider \
		$(WITHOUT_PLUGINS)

$(NEWEST)/.ready: pyproject.toml
	@echo "Installing the newest libraries into $(NEWEST)"
	@for version in $(NEWEST_PYTHONS); do $(find_python); test -z "$$found" || break; done; \
	if test -z "$$found"; then echo "There is none of Python $(NEWEST_PYTHONS) on the PATH or in pyenv."; exit 1; fi; \
	echo "Python $$version: $$found"; \
	$$found -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python $(UPGRADE_PIP)
	$(NEWEST)/bin/python $(PIP) torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(NEWEST)/bin/python $(PIP) -e '.[all]' --group dev
	$(NEWEST)/bin/python $(PIP) ./examples/arrayferry-classic ./examples/arrayferry-sparse ./examples/arrayferry-mlx
	@touch $@

# Groups of pyproject.toml in environments of their own.
.venv-docs/.ready .venv-tools/.ready: .venv-%/.ready: pyproject.toml constraints.txt
	$(NEW_ENOUGH)
	@echo "Installing the group $* into .venv-$*"
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(UPGRADE_PIP)
	.venv-$*/bin/python $(PIP) -c constraints.txt --group $*
	@touch $@

# The pages, in site/. Some faults are no errors for Zensical, also if it is strict. So anything in its log that is not
# in that of a build without faults is an error, and the pages are checked.
pyproject = $(shell $(PYTHON) -c "import tomllib; print(tomllib.load(open('pyproject.toml', 'rb'))$(1))")
address = $(call pyproject,['tool']['hatch']['metadata']['hooks']['custom']['$(1)'])
PAGES_URL = $(call address,documentation)
BELOW :=
docs: .venv-docs/.ready  ## build the pages into site/, and check them
	@SITE_URL=$(PAGES_URL:%=%$(BELOW)) REPO_URL=$(call address,address) \
		.venv-docs/bin/zensical build --clean --strict > .venv-docs/log 2>&1; \
		status=$$?; sed "s/$$(printf '\033')\[[0-9;]*m//g" .venv-docs/log; exit $$status
	@! grep --invert-match --extended-regexp '^(Build started|No issues found|Build finished in .*|)$$' .venv-docs/log
	@$(PYTHON) tools/check_site.py site $(or $(PAGES_URL),http://localhost)$(BELOW)

# ONNX Runtime for browsers is 14 MB, so it comes from npm when the page is built.
RUNTIME := build/npm/package/dist
$(RUNTIME):
	mkdir -p build/npm
	cd build/npm && npm pack --silent onnxruntime-web@1.30.0 && tar xzf onnxruntime-web-*.tgz

play: $(CLASSIC) $(RUNTIME)  ## the page to play environments, with its files, in build/play
	mkdir -p build/play
	cp docs/play/* build/play
	$(BIN)/python tools/play.py build/play $(RUNTIME)
	if test -e $(FUNCTIONAL); then .venv-functional/bin/python tools/play_suites.py build/play; else \
		echo 'Breakout and 2048 are left out. They need "make $(FUNCTIONAL)", 0.5 GB on disk.'; fi

# In a folder for this version, beside those of earlier ones. All pages read versions.json, and let the reader choose one.
# The address of the pages leads to the newest.
PAGES ?= build/pages
RELEASE = $(call pyproject,['project']['version'])
pages:  ## build the pages of this version beside those of earlier ones, in PAGES
	$(MAKE) docs BELOW=/$(RELEASE)
	rm -rf $(PAGES)/$(RELEASE)
	$(MAKE) play
	mkdir -p $(PAGES)
	cp -R site $(PAGES)/$(RELEASE)
	cp build/play/* $(PAGES)/$(RELEASE)/play
	cd $(PAGES) && set -- $$(ls -d [0-9]*/ | tr -d / | sort -rV) && \
		$(PYTHON) -c "import json, sys; print(json.dumps([dict(version=v, title=v, aliases=[]) for v in sys.argv[1:]]))" \
			"$$@" > versions.json && \
		echo "<meta http-equiv='refresh' content='0; url=$$1/'>" > index.html

# The sdist and the wheel, in dist/.
package: .venv-tools/.ready  ## build the package, and try it in an empty environment
	.venv-tools/bin/python tools/check_package.py

rehearsal: .venv-tools/.ready  ## the same, upload it to an index on this machine, install it from there; and its pages
	.venv-tools/bin/python tools/check_package.py --rehearse
	mkdir -p build/rehearsal/0.0.1
	$(MAKE) pages PAGES=build/rehearsal
	grep --quiet '"$(RELEASE)".*"0.0.1"' build/rehearsal/versions.json

release: .venv-tools/.ready  ## build the package for a release, as the workflow does
	.venv-tools/bin/python tools/check_package.py --release

# The workflows and forms in .github, and CITATION.cff.
SCHEMA := .venv-tools/bin/check-jsonschema --builtin-schema vendor
workflows: .venv-tools/.ready  ## check the workflows, the forms and the citation
	$(SCHEMA).github-workflows .github/workflows/*.yml
	$(SCHEMA).github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA).github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA).citation-file-format CITATION.cff
	.venv-tools/bin/zizmor --offline --pedantic .github/workflows

# Clients that need a separate environment, on top of the main one.
define on_top
$(PYTHON) -m venv $(1)
$(1)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $(1)/place
$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	> "$$(cat $(1)/place)/outer.pth"
endef

# gymnax does not say that it needs six.
$(GYMNAX): $(READY)
	@echo "Installing gymnax into .venv-gymnax"
	$(call on_top,.venv-gymnax)
	.venv-gymnax/bin/python -m pip install --quiet --disable-pip-version-check gymnax==1.0.1 six
	@touch $@

# Tianshou asks for older versions of pandas and deepdiff, which its Batch does not need.
$(VALUES): $(READY) tests/downstream/requirements.txt
	@echo "Installing libraries of containers into .venv-values"
	$(call on_top,.venv-values)
	.venv-values/bin/python -m pip install --quiet --disable-pip-version-check -r tests/downstream/requirements.txt
	.venv-values/bin/python -m pip install --quiet --disable-pip-version-check --no-deps tianshou==2.0.1
	@touch $@

downstream: $(GYMNAX) $(VALUES) $(CLASSIC)  ## run the tests of Gymnasium, gymnax and libraries of containers with arrayferry
	.venv-gymnax/bin/python -m pytest tests/downstream/test_gymnax.py
	.venv-values/bin/python -m pytest $(PARALLEL) -p no:cacheprovider tests/downstream/values
	.venv-values/bin/python -m pytest -p no:cacheprovider tests/docs/test_pages.py -k "reference/values or how-to/streams" \
		-m "long or not long"
	$(BIN)/python -m pytest -rA tests/downstream/test_gymnasium.py

# Real environments and trainers of many packages. Their pins conflict, so they are installed without what they ask for.
$(BRIDGES): $(READY) tests/bridges/requirements.txt
	@echo "Installing environments and trainers into .venv-bridges"
	$(call on_top,.venv-bridges)
	.venv-bridges/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/bridges/requirements.txt
	@touch $@

# Functional environments of other libraries, which need another version of MuJoCo.
$(FUNCTIONAL): $(READY) tests/bridges/functional/requirements.txt $(wildcard examples/arrayferry-xland/*/*.py)
	@echo "Installing functional environments into .venv-functional"
	$(call on_top,.venv-functional)
	.venv-functional/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		-r tests/bridges/functional/requirements.txt
	.venv-functional/bin/python $(PIP) --no-deps --no-build-isolation --force-reinstall ./examples/arrayferry-xland
	@touch $@

# Simulators, whose pins conflict, in an environment for each.
SIMULATORS := mjlab genesis
$(SIMULATORS:%=.venv-%/.ready): .venv-%/.ready: $(READY) tests/bridges/simulators/%.txt
	@echo "Installing $* into .venv-$*"
	$(call on_top,.venv-$*)
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/bridges/simulators/$*.txt
	@touch $@

# Each simulator is built once, for agents in all libraries, and says how long that takes. Of the example plugins, only
# TensorFlow is needed: for the pages.
bridges: $(EXAMPLES) $(BRIDGES) $(FUNCTIONAL) $(SIMULATORS:%=.venv-%/.ready)  ## run environments, trainers and data pipelines of many packages
	for each in $(SIMULATORS); do \
		.venv-$$each/bin/python -m pytest -p no:cacheprovider --capture=no tests/bridges/simulators/test_$$each.py || exit 1; \
	done
	.venv-bridges/bin/python -m pytest $(PARALLEL) -p no:cacheprovider tests/bridges \
		--ignore=tests/bridges/test_rllib.py --ignore=tests/bridges/functional --ignore=tests/bridges/simulators \
		gym_adapters/arrayferry_gym/rsl_rl.py gym_adapters/arrayferry_gym/tianshou.py \
		tests/gym_adapters/*/test_from_simulator.py tests/gym_adapters/arrayferry_envs/test_rsl_rl.py
	.venv-bridges/bin/python -m pytest -p no:cacheprovider tests/bridges/test_rllib.py
	.venv-bridges/bin/python -m pytest -p no:cacheprovider tests/docs/test_pages.py -k gymnasium-wrappers \
		-m "long or not long"
	$(FAST_XLA) .venv-functional/bin/python -m pytest -n $(JOBS) -p no:cacheprovider tests/bridges/functional
	$(FAST_XLA) .venv-functional/bin/python -m pytest -p no:cacheprovider -m "long or not long" examples/arrayferry-xland
	$(FAST_XLA) .venv-functional/bin/python -m pytest -p no:cacheprovider tests/docs/test_pages.py \
		-k "other-environments or how-to/export or README" -m "long or not long"

# Environments of many suites, each in a process of its own: tools/suites.py. Results are in build/suites.
SUITES := build/suites
suites: $(BRIDGES) $(FUNCTIONAL) .venv-mjlab/.ready  ## make, step and audit one environment of each family of each suite
	@for each in bridges functional mjlab; do \
		.venv-$$each/bin/python tools/suites.py run $(SUITES)/$$each.json $$(cat tools/suites-$$each.txt); \
	done; $(BIN)/python tools/suites.py table $(SUITES)/*.json

suites-all: $(BRIDGES) $(FUNCTIONAL) .venv-mjlab/.ready  ## the same for each environment that suites list; this takes a day
	@for each in bridges functional mjlab; do \
		.venv-$$each/bin/python tools/suites.py run $(SUITES)/all-$$each.json; \
	done; $(BIN)/python tools/suites.py table $(SUITES)/all-*.json

translated: $(FUNCTIONAL)  ## step environments of JAX in NumPy and PyTorch, compare with JAX, and write the table: 20 minutes
	.venv-functional/bin/python tools/translated.py run build/translated.json
	$(BIN)/python tools/translated.py table build/translated.json

# What vectorises environments, with versions that conflict with those of others.
$(AUDIT): $(READY) tests/audit_all/requirements.txt
	@echo "Installing what vectorises environments into .venv-audit"
	$(call on_top,.venv-audit)
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/audit_all/requirements.txt
	@touch $@

audit-all: $(AUDIT)  ## audit each implementation of vector environments, and write the table of docs/evidence.md: 5 minutes
	.venv-audit/bin/python tools/audit_all.py run build/audit.json
	.venv-audit/bin/python tools/audit_all.py reproduce
	$(BIN)/python tools/audit_all.py table build/audit.json

curves: $(READY)  ## train agents with wrong ends of episodes, and draw what that costs: 4 minutes
	$(BIN)/python benchmarks/curves.py

trainers: $(AUDIT)  ## train PPO of several projects on several vector environments, one line changed: 7 minutes
	.venv-audit/bin/python benchmarks/trainers.py

# The adapters' tests with each supported version of Gymnasium. MLX runs on the CPU on Linux, and `make test` has its
# newest version.
GYMNASIUMS := 1.1.1 1.2.3 1.3.0 1.4.0
OLDEST_MLX := 0.32.2
matrix: $(CLASSIC)  ## test the adapters with each supported version of Gymnasium, and the plugin of MLX with the oldest
	@for version in $(GYMNASIUMS); do \
		echo "gymnasium $$version"; \
		test -d .overlays/$$version || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--no-deps --target .overlays/$$version gymnasium==$$version || exit 1; \
		PYTHONPATH=.overlays/$$version $(BIN)/python -m pytest -q $(PARALLEL) tests/gym_adapters examples/arrayferry-classic || exit 1; \
	done
	test -d .overlays/mlx || $(BIN)/python $(PIP) --no-deps --no-build-isolation --target .overlays/mlx \
		./examples/arrayferry-mlx mlx==$(OLDEST_MLX) mlx-cpu==$(OLDEST_MLX)
	PYTHONPATH=.overlays/mlx $(BIN)/python -m pytest -q -m "long or not long" examples/arrayferry-mlx \
		tests/core/arrayferry/test_dtypes.py

# The tests with the oldest version of each library. The build of torch on PyPI brings 5 GB of CUDA libraries.
FLOOR := .venv-oldest
floor: $(FLOOR)/.ready  ## test with the oldest supported version of each library
	$(FLOOR)/bin/python -m pytest $(PARALLEL) -p no:cacheprovider tests/core tests/plugins tests/gym_adapters tests/cli \
		examples/arrayferry-classic

$(FLOOR)/.ready: pyproject.toml constraints-oldest.txt
	@echo "Installing the oldest supported libraries into $(FLOOR); PyTorch brings 5 GB of CUDA libraries"
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[all,cli]' \
		./examples/arrayferry-classic \
		ale-py array-api-strict attrs cloudpickle distributed equinox flax h5py hatchling \
		hypothesis matplotlib moviepy opencv-python-headless optax pygame pytest pytest-xdist tensordict
	@touch $@

# The tests that libraries matter most to, with versions drawn between the oldest and the newest, by SEED. PyTorch stays
# as it is, since its other builds are large. Equinox reads deprecated names of some versions of JAX.
DRAWN := .venv-drawn
SEED ?= $(shell date +%j)
drawn:  ## test with versions of libraries that are drawn by SEED
	mkdir -p build
	$(PYTHON) tools/drawn_versions.py $(SEED) | tee build/drawn.txt
	test -d $(DRAWN) || $(PYTHON) -m venv $(DRAWN)
	$(DRAWN)/bin/python $(UPGRADE_PIP)
	$(DRAWN)/bin/python $(PIP) $(TORCH)
	$(DRAWN)/bin/python $(PIP) --upgrade --upgrade-strategy eager -c build/drawn.txt -e '.[jax,dask,distributed,gym,cli]' array-api-strict attrs cloudpickle \
		distributed equinox flax hypothesis ml-dtypes pygame pytest pytest-xdist tensordict
	$(DRAWN)/bin/python -m pip freeze | grep -E "^($$(sed 's/<.*//' build/drawn.txt | paste -sd '|'))=="
	$(DRAWN)/bin/python -m pytest $(PARALLEL) -p no:cacheprovider \
		-W "ignore:jax.core:DeprecationWarning" tests/core/arrayferry/test_matrix.py tests/core/arrayferry/test_trees.py \
		tests/core/arrayferry/test_lazy.py tests/adversaries/test_relations.py tests/gym_adapters/arrayferry_gym/test_adapters.py \
		tests/gym_adapters/arrayferry_cluster/test_pickles.py tests/gym_adapters/arrayferry_envs/test_rollouts.py

# Half an hour of generated values: raw buffers, and converters that meet values that change from call to call.
fuzz: $(READY)  ## convert generated values for half an hour
	$(BIN)/python -W ignore tests/adversaries/fuzz.py
	$(BIN)/python -W ignore tests/adversaries/stateful.py --conversions 200000

# Plants faults in the code, and shows which ones the tests do not notice.
MUTANTS ?= 40
mutants: $(EXAMPLES)  ## plant faults in the code, and show which ones the tests miss
	$(BIN)/python tests/adversaries/mutants.py $(MUTANTS)

histories: $(READY)  ## collect in random histories in which workers are killed, 8 in each mode and kind
	HISTORIES=8 $(FAST_XLA) $(BIN)/python -m pytest -m long tests/gym_adapters/arrayferry_cluster/test_collector_losses.py -k histories

bench: $(CLASSIC)  ## compare the speed with Gymnasium's and with calls written by hand
	$(BIN)/python benchmarks/run.py

# Streams of 4 GiB, and environments on two workers.
bench-dask: $(READY)  ## measure streams of 4 GiB, and environments on two workers
	$(BIN)/python benchmarks/streams.py
	$(BIN)/python benchmarks/cluster.py

# Like mypy, pyright takes no types from the array libraries: it looks for packages where none are installed,
# whichever environment is active. In tests/types both use those of $(VENV).
# Each of these tests lists all that is missing.
MISSING := tests/gym_adapters/arrayferry_gym/test_generated_wrappers.py \
	tests/types/test_types.py::test_overloads_of_the_adapters_are_those_that_the_tool_writes \
	$(addprefix tests/docs/test_,reference.py contributions.py packaging.py tools.py pages.py) \
	tests/together/test_errors.py tests/together/test_layers.py \
	tests/gym_adapters/arrayferry_gym/test_kernels.py::test_each_kernel_is_tested_here \
	tests/adversaries/test_relations.py::test_all_kernels_are_drawn \
	tests/adversaries/test_first_calls.py::test_each_public_function_is_called
lint-docs: $(READY)  ## list what a new wrapper, suite, option, error or page lacks: rows, names, docstrings, tests
	@$(PYTEST) -q -r fE --tb=short --deselect tests/docs/test_pages.py::test_block $(MISSING)

lint: $(READY)  ## check the style and the types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath "$$($(BIN)/python -c 'import sys; print(sys._base_executable)')"
	$(BIN)/python -m pytest -q tests/types

format: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove environments, caches and builds
	rm -rf $(VENV) .venv-* .overlays .mutants build dist site .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
