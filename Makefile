# `make demo` and `make test` work in a fresh clone with Python 3.11 (or newer) and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
# Tests start processes by the hundred, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: chromium screenshots docs notebooks soak demo test check tests coverage bench hf peers amplified-peers truth badinputs mutants reference clean

demo: $(VENV)/.installed  ## install, then train on the embedded images
	$(BIN)/dpfl run

test: $(VENV)/.installed-dev chromium  ## install, then every check beside every test
	@$(MAKE) --no-print-directory --jobs=2 check tests

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/lint-imports

tests: $(VENV)/.installed-dev
	$(BIN)/python -m compileall -q src
	$(BIN)/pytest -n 4 --dist loadgroup

chromium:  ## for the tests in a browser: Debian's, where it is missing and root may install it; else they are skipped, and say so
	@command -v chromium || command -v chromium-browser || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	  && apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; } \
	  || echo "there is no Chromium here: the tests in a browser are skipped (apt install chromium)"

screenshots: $(VENV)/.installed-dev  ## the pictures of the pages that README and docs show
	$(BIN)/python scripts/screenshots.py

coverage: $(VENV)/.installed-dev  ## the same tests with their coverage, which takes longer
	$(BIN)/pytest -n 4 --dist loadgroup --cov=dpfl --cov-report=term:skip-covered

bench: .venv-bench/.installed  ## speed against peers: ARGS="--quick" or ARGS="--only steps"
	.venv-bench/bin/python -m benchmarks.run $(ARGS)

peers: .venv-peers/.installed  ## the games of an audit on what others ship: the table of docs/peers.md
	.venv-peers/bin/python -W ignore examples/audit_peers.py $(ARGS)

amplified-peers: .venv-peers/.installed  ## the amplification game on Opacus and jax-privacy: a table of docs/peers.md
	.venv-peers/bin/python -W ignore examples/amplify_peers.py $(ARGS)

.venv-peers/.installed: requirements-dev.txt requirements.txt examples/peers.txt pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	.venv-peers/bin/python -m pip install -q --disable-pip-version-check --no-deps -r examples/peers.txt
	.venv-peers/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

truth: $(VENV)/.installed  ## audit every system and write docs/truth.md
	$(BIN)/python scripts/truth.py

badinputs: $(VENV)/.installed  ## what nobody should type, typed: no traceback, no debit without a release
	$(BIN)/python scripts/bad_inputs.py $(ARGS)

mutants: $(VENV)/.installed-dev  ## small faults in what guarantees rest on, some 5,000: does the nearest test notice? hours; ARGS="--sample 120"
	$(BIN)/python scripts/mutants.py $(ARGS)

soak: $(VENV)/.installed-dev  ## twenty random kills in a federation of real processes; every release must be in a ledger
	$(BIN)/python scripts/soak.py $(ARGS)

reference: $(VENV)/.installed  ## write docs/reference.md and docs/commands.md from the code
	$(BIN)/python scripts/reference.py

docs: .venv-docs/.installed  ## the documentation site into site/: open site/index.html
	.venv-docs/bin/python scripts/reference.py
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --clean --quiet
	@echo "open site/index.html"

notebooks: .venv-docs/.installed  ## run the notebooks of examples/ and keep what they showed
	.venv-docs/bin/python scripts/notebooks.py

hf: .venv-hf/.installed  ## models of transformers and adapters of peft, tiny and random: nothing is downloaded but the packages
	.venv-hf/bin/python -m pytest -q -p no:cacheprovider tests_hf

.venv-hf/.installed: requirements.txt tests_hf/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-hf
	.venv-hf/bin/python -m pip install -q --disable-pip-version-check -r requirements.txt -r tests_hf/requirements.txt
	.venv-hf/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

.venv-docs/.installed: requirements.txt docs/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -q --disable-pip-version-check -r requirements.txt -r docs/requirements.txt
	.venv-docs/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

.venv-bench/.installed: benchmarks/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check --no-deps -r benchmarks/requirements.txt
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-bench .venv-docs .venv-hf .venv-peers build site dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
