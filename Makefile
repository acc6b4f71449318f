# The verbs of the workshop. `make help` lists them.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
HOSTS  ?= node1:2,node2:2
# Words for `distlab lab`, such as --no-browser or --port 9000.
LAB    ?=
# Words for pytest, such as -k ddp or tests/unit. Without any, two processes share all tests.
TESTS  ?=
QUICK  := tests/unit tests/notebooks/test_policy.py workspace/Start_Here.ipynb
# Whose containers: empty for one pair of nodes, 3 for seat 3, 1-20 for a room.
SEAT   ?=
# For how many attendees `make preflight` looks, and its other words, such as --no-start.
SEATS  ?=
PREFLIGHT ?=
# The one place of the version is pyproject.toml; the image's label gets it from here.
export WORKSHOP_VERSION ?= $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help lab demo horovod up urls down preflight python test test-quick doctor lint format record record-mistakes pins bench clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

lab: $(VENV)/.seen ## set up, train on two hosts once, open JupyterLab
	@$(BIN)/python -m distlab.horovod_wheel --beside || true
	@$(BIN)/distlab lab $(LAB)

demo: $(VENV)/.data ## train on two hosts of two ranks each and print the table
	@$(BIN)/distlab run ddp --hosts $(HOSTS) -- --epochs 1

horovod: $(VENV)/.installed ## build Horovod for lesson 04, once (HOROVOD_NCCL=1: also for GPUs)
	@$(BIN)/python -m distlab.horovod_wheel

up: python ## start node1 and node2 in containers, or those of seats (SEAT=3, SEAT=1-20)
	@exec $(CLASSROOM) up --seat "$(SEAT)"

urls: python ## print the pages of all containers that run (or SEAT=3)
	@exec $(CLASSROOM) urls --seat "$(SEAT)"

down: python ## remove all containers and keep the attendees' work (or SEAT=3)
	@exec $(CLASSROOM) down --seat "$(SEAT)"

preflight: python ## will the workshop run on this machine? (SEATS=20 for a room)
	@exec $(CLASSROOM) preflight --seats "$(SEATS)" $(PREFLIGHT)

# Horovod is built beside the tests; those that need it run late, and wait.
test: $(VENV)/.data ## run every test: unit, two hosts, lessons, engines
	@$(BIN)/python -m distlab.horovod_wheel --beside || true
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest $(or $(TESTS),-n 2)

test-quick: $(VENV)/.data ## run the unit tests and the first notebook (at most 5 minutes)
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest -n 2 $(QUICK)

doctor: $(VENV)/.installed ## say what is here and how to mend what is not
	@$(BIN)/distlab doctor

lint: $(VENV)/.installed ## check style, types, spelling, and which room imports which
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy
	@$(BIN)/codespell
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed ## mend style
	@$(BIN)/python -m ruff check --fix . && $(BIN)/python -m ruff format .

record: $(VENV)/.data ## run the lessons and store what they print (LESSONS=path ...)
	@$(BIN)/python tests/notebooks/record.py $(LESSONS)

record-mistakes: $(VENV)/.installed ## run planted mistakes whose recording is out of date (EXERCISES=all: every one)
	@$(BIN)/python tests/lessons/record_mistakes.py $(EXERCISES)

bench: $(VENV)/.data ## run every benchmark; each prints ratios of one run
	@for file in bench/[a-z]*.py; do $(BIN)/distlab bench $$(basename $$file .py) || exit 1; done

pins: $(VENV)/.installed ## write the installed versions to constraints.txt
	@$(BIN)/python -m pip freeze --all --exclude pip --exclude horovod --exclude-editable | sort -f \
	  | sed "1i # Every version that the lessons were proved with, direct and indirect; 'make pins' writes this file." > constraints.txt

clean: ## delete the environment and the runs
	rm -rf $(VENV) workspace/runs

# --- what runs on the machine itself, with nothing but Python -----------------------------------

# -B: where root starts it, no files of root's are left among the attendee's.
CLASSROOM = env PYTHONPATH=workspace $(PYTHON) -B -m distlab.classroom

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "The workshop needs Python 3.11 or newer, as in: make up PYTHON=python3.12"; exit 1; }

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
