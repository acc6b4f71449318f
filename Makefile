# The verbs of the workshop. `make help` lists them.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
HOSTS  ?= node1:2,node2:2
# Words for `distlab lab`, such as --no-browser or --port 9000.
LAB    ?=
# Words for pytest, such as -k ddp or tests/unit.
TESTS  ?=

.DEFAULT_GOAL := help
.PHONY: help lab demo test doctor lint format record pins bench clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

lab: $(VENV)/.seen ## set up, train on two hosts once, open JupyterLab
	@$(BIN)/distlab lab $(LAB)

demo: $(VENV)/.data ## train on two hosts of two ranks each and print the table
	@$(BIN)/distlab run ddp --hosts $(HOSTS) -- --epochs 1

test: $(VENV)/.data ## run every test: unit, two hosts, lessons, engines
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m pytest $(TESTS)

doctor: $(VENV)/.installed ## say what is here and how to mend what is not
	@$(BIN)/distlab doctor

lint: $(VENV)/.installed ## check style
	@$(BIN)/python -m ruff check . && $(BIN)/python -m ruff format --check .

format: $(VENV)/.installed ## mend style
	@$(BIN)/python -m ruff check --fix . && $(BIN)/python -m ruff format .

record: $(VENV)/.data ## run the lessons and store what they print (LESSONS=path ...)
	@$(BIN)/python tests/lessons/record.py $(LESSONS)

bench: $(VENV)/.data ## run every benchmark; each prints ratios of one run
	@for file in bench/[a-z]*.py; do $(BIN)/distlab bench $$(basename $$file .py) || exit 1; done

pins: $(VENV)/.installed ## write the installed versions to constraints.txt
	@$(BIN)/python -m pip freeze --exclude-editable | sort -f \
	  | sed "1i # Every version that the lessons were proved with, direct and indirect; 'make pins' writes this file." > constraints.txt

clean: ## delete the environment and the runs
	rm -rf $(VENV) workspace/runs

# --- what is done once -------------------------------------------------------------------------

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "The workshop needs Python 3.11 or newer with venv; $(PYTHON) is $$($(PYTHON) --version 2>&1). See README.md."; exit 1; }
	@test -x $(BIN)/python || { echo "Making the environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing pinned packages (a few minutes and 6 GB, once)"
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.data: $(VENV)/.installed
	@echo "Preparing Fashion-MNIST"
	@$(BIN)/distlab data
	@touch $@

$(VENV)/.seen: $(VENV)/.data
	@$(BIN)/distlab doctor
	@echo "Training on two hosts of two ranks each: $(HOSTS)"
	@$(BIN)/distlab run ddp --hosts $(HOSTS) -- --epochs 1
	@touch $@
