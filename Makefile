# make lab     install what is needed and serve the lab
# make test    install what the tests need, then run every check
#
# Variables: MODEL (a hub id or a folder; empty: the model that ships), PYTHON (3.11 or newer), VENV, HOST, PORT, ARGS
# (more for `kvlab serve` or pytest), JOBS (tests that run at once), WINDOWS (browser tests that do) and TORCH_INDEX,
# the package index to take torch from. Empty: pip's own configuration decides. A value is remembered in the
# environment, so it has to be given once.

PYTHON      ?= python3
VENV        ?= .venv
HOST        ?= 127.0.0.1
PORT        ?= 7860
TORCH_INDEX ?=
MODEL       ?=
ARGS        ?=
JOBS        ?= 2
WINDOWS     ?= 1

BIN         := $(VENV)/bin
PIP         := $(BIN)/python -m pip --disable-pip-version-check -qq
REQUIREMENTS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help lab test test-all tests-of-code tests-in-browser chromium lint ruff types contracts circles format picture soak fuzz siege gpu pools renew clean FORCE

help:
	@echo "make lab      install, then serve the lab at http://$(HOST):$(PORT)"
	@echo "make lab MODEL=<hub id or folder>   the same with a model of your own"
	@echo "make test     install what the tests need, then lint and test"
	@echo "make test-all the same, with every slow test, example of the gallery and end of an option"
	@echo "make lint     ruff, mypy, import contracts"
	@echo "make format   let ruff rewrite the code"
	@echo "make picture  renew docs/images/lab.png from the running page"
	@echo "make soak     100 simulated visitors for 10 minutes; report in build/soak.json"
	@echo "make gpu      the tests and benchmarks that need a CUDA device; goes on where it stopped (ARGS=--rehearse: on a CPU)"
	@echo "make pools    KVCOMM's Tables 5 and 6 behind 20 warm-ups, into FINDINGS.md; goes on where it stopped (an hour)"
	@echo "make fuzz     5,000 malformed calls and files; report in build/fuzz.json"
	@echo "make siege    attacks of strangers beside honest visitors, for a minute; report in build/siege.json"
	@echo "make renew    whatever depends on the embedded model's weights; goes on where it stopped (hours)"
	@echo "make clean    remove the environment and all caches"

lab: $(VENV)/.lab-stamp
	$(BIN)/kvlab serve --host $(HOST) --port $(PORT) $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# A sample of what is slow or alike, with fewer drawn examples; test-all runs everything.
test: SAMPLE := --sample
# Few journeys are drawn: a second window would wait for servers of its own longer than it saves.
test: WINDOWS := 1
test-all: WINDOWS := $(JOBS)
# Tests start processes of their own: without compiled files each would compile all that it imports again.
test test-all: export PYTHONDONTWRITEBYTECODE :=
test test-all: $(VENV)/.test-stamp
	@$(MAKE) --no-print-directory -j 3 tests-in-browser tests-of-code lint SAMPLE=$(SAMPLE) WINDOWS=$(WINDOWS)
	$(BIN)/python -m pytest -m alone $(SAMPLE) $(or $(ARGS),tests/backend/sweeps/test_ray_cluster.py); $(SOME)

# These run beside each other, for journeys often wait for their page; the others stand back (nice), for a page that
# waits for its clicks too long fails. What the journeys print is shown when they have ended.
SPREAD := $(BIN)/python -m pytest --dist worksteal
tests-of-code: $(VENV)/.test-stamp
	OMP_NUM_THREADS=1 nice -n 5 $(SPREAD) -n $(JOBS) -m "not alone and not browser" $(SAMPLE) $(ARGS); $(SOME)
tests-in-browser: $(VENV)/.test-stamp chromium
	@mkdir -p build
	OMP_NUM_THREADS=1 $(SPREAD) -n $(WINDOWS) -m "browser and not alone" $(SAMPLE) $(or $(ARGS),tests/browser) >build/browser.log 2>&1; \
	    found=$$?; cat build/browser.log; [ $$found = 5 ] || exit $$found

# ARGS may choose tests of one kind only: that another run found none is no failure.
SOME := found=$$?; [ $$found = 5 ] || exit $$found

chromium:
	@scripts/install-chromium.sh

lint: ruff types contracts circles

ruff: $(VENV)/.test-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-stamp
	$(BIN)/mypy

contracts: $(VENV)/.test-stamp
	$(BIN)/lint-imports --no-logo

circles: $(VENV)/.test-stamp
	$(BIN)/python scripts/imports.py
	$(BIN)/python scripts/house.py --check

format: $(VENV)/.test-stamp
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

picture: $(VENV)/.test-stamp chromium
	$(BIN)/python scripts/screenshot.py docs/images/lab.png $(ARGS)

soak: $(VENV)/.test-stamp
	@mkdir -p build
	$(BIN)/python benchmarks/soak.py --json build/soak.json $(ARGS)

fuzz: $(VENV)/.test-stamp
	@mkdir -p build
	$(BIN)/python benchmarks/fuzz.py --json build/fuzz.json $(ARGS)

siege: $(VENV)/.test-stamp
	@mkdir -p build
	$(BIN)/python benchmarks/siege.py --json build/siege.json $(ARGS)

renew: $(VENV)/.test-stamp
	$(BIN)/python scripts/renew.py $(ARGS)

gpu: $(VENV)/.test-stamp
	$(BIN)/python scripts/gpu.py $(or $(ARGS),--write)

pools: $(VENV)/.test-stamp
	@mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/kvlab sweep presets/sweeps/tables-5-6.yaml --out build/tables-5-6.sqlite $(ARGS)
	cp build/tables-5-6.summary.json benchmarks/results/tables-5-6-warmups.json
	$(BIN)/python scripts/pools.py --write

clean:
	rm -rf $(VENV) build *.egg-info .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. Its stamps make a second `make lab` instant; editing the requirements renews it.
$(VENV)/.venv-stamp:
	@command -v "$(PYTHON)" >/dev/null || { echo "No '$(PYTHON)' found. Install Python 3.11 or newer, or name it: make lab PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "'$(PYTHON)' is $$("$(PYTHON)" --version 2>&1); the lab needs 3.11 or newer: make lab PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Creating the environment $(VENV)"
	@"$(PYTHON)" -m venv "$(VENV)"
	@touch $@

# Rewritten only when another index is asked for; then the torch of the old one has to go.
$(VENV)/.torch-index: $(VENV)/.venv-stamp FORCE
	@[ -e $@ ] || : > $@
	@if [ -n "$(TORCH_INDEX)" ] && [ "$(TORCH_INDEX)" != "$$(cat $@)" ]; then \
	    $(PIP) uninstall --yes torch 2>/dev/null; printf '%s\n' "$(TORCH_INDEX)" > $@; fi

define install
	@echo "Installing $(1) into $(VENV) (a minute or two the first time)"
	@if [ "$$(uname -s)" = Linux ] && [ ! -s $(VENV)/.torch-index ] && ! command -v nvidia-smi >/dev/null; then \
	    echo "If CUDA packages are fetched (several GB) that you do not need: see 'CPU or GPU' in README.md"; fi
	@index="$$(cat $(VENV)/.torch-index)"; \
	    $(BIN)/python scripts/install.py $${index:+--extra-index-url "$$index"} -e "$(2)"
endef

$(VENV)/.lab-stamp: $(VENV)/.torch-index $(REQUIREMENTS)
	$(call install,the lab,.)
	@touch $@

$(VENV)/.test-stamp: $(VENV)/.torch-index $(REQUIREMENTS)
	$(call install,the lab and what its tests need,.[test$(comma)dev])
	@touch $@ $(VENV)/.lab-stamp

comma := ,
