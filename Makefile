# `make answer` and `make test` need Python 3.11, 3.12 or 3.13 and make, nothing else.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do $$python -c \
  'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
SITE := build/site
BIN := $(VENV)/bin
DATA ?= ../shared/data
MODEL ?= ranker+small
MODELS ?= small ranker ranker+small
SELECT ?= not extended
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
PIP := -m pip --disable-pip-version-check install
PINNED := --constraint constraints.txt --editable

# Installs packages into the environment of the target, which marks the success, and shows those of
# 10 MB or more.
define install
@rm -f $@
@{ $(@D)/bin/python $(PIP) $(1) && touch $@; } | sed -Eun \
  -e 's/^ *(Downloading|Using cached) (\w+)-.*\(([0-9]{2,}.* MB)\)/    \2, \3/p' \
  -e 's/^Obtaining .*/  finding the packages; those of 10 MB or more are named …/p' \
  -e 's/^Installing collected packages.*/  installing, about a minute …/p'
@test -e $@
endef

GPU_VENV ?= .venv-gpu
GPU_EXTRA ?= gpu
GPU_DATA ?= nq/sample/questions.jsonl
GPU_REPORT := runs/gpu_report
GPU_CARD := nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>/dev/null \
  || echo "nvidia-smi finds no GPU: the figures are of the CPU"

.PHONY: help answer gpu-report test test-all test-fast lint types format docs tables pictures sample model \
  cluster cluster-stop clean
.DEFAULT_GOAL := answer

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s%s\n", $$1, $$2 }' Makefile

answer: $(VENV)/.run  ## Answer the bundled questions with MODEL (ranker+small)
	@$(BIN)/python -m nq.answer --model $(MODEL)

gpu-report: $(GPU_VENV)/.run  ## Measure the profiles of the thesis on this machine's GPU (GPU_DATA, GPU_EXTRA=gpu)
	@$(GPU_CARD)
	@$(GPU_VENV)/bin/nq compare --profiles thesis mixed+xla+grappler+buckets --data $(GPU_DATA) \
	  --output $(GPU_REPORT) --no-track
	@{ $(GPU_CARD); $(GPU_VENV)/bin/python -m pip freeze; } > $(GPU_REPORT)/machine.txt
	@tar -C $(GPU_REPORT) -czf $(GPU_REPORT).tar.gz compare.json compare.html machine.txt
	@echo "please send $(GPU_REPORT).tar.gz: the figures, the card and the versions"

test: $(VENV)/.dev lint types  ## Lint, types, all tests but the extended ones
	@$(PYTEST) -m "$(SELECT)"

test-all: $(VENV)/.peers lint types  ## All tests: studies, clusters, long attacks, peers too
	@$(PYTEST) --hypothesis-profile extended

test-fast: $(VENV)/.dev  ## The tests that take less than a few seconds each
	@$(PYTEST) -m "not slow and not extended"

lint: $(VENV)/.dev  ## Check the code with ruff
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

types: $(VENV)/.dev  ## Check the types with mypy
	@$(BIN)/mypy

format: $(VENV)/.dev  ## Format the code and fix what the linter can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.docs  ## Write the documentation as a site, whose first page is build/site/index.html
	@echo "writing the site, about half a minute …"
	@$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning -c docs . $(SITE)
	@cp $(SITE)/README.html $(SITE)/index.html
	@echo "the site: $(SITE)/index.html"

tables: $(VENV)/.dev  ## Write the tables of README and docs from the results in experiments/results
	@$(BIN)/python -m experiments.tables

pictures: $(VENV)/.run  ## Draw the pictures of README, which then tell what its text tells (Chromium)
	@$(BIN)/python -m experiments.picture

sample: $(VENV)/.run  ## Make the bundled questions from their sources again
	@$(BIN)/python -m experiments.make_sample

model: $(VENV)/.run  ## Make MODELS (small ranker ranker+small) from DATA again, into runs/model (hours; Maven)
	@$(BIN)/python -m experiments.make_model --data $(DATA) --models $(MODELS)

cluster: $(VENV)/.run  ## Start a Flink cluster on this machine, and print how to use it
	@$(BIN)/python -m experiments.cluster start

cluster-stop: $(VENV)/.run  ## End that cluster
	@$(BIN)/python -m experiments.cluster stop

clean:  ## Remove everything that is not in git
	rm -rf $(VENV) $(GPU_VENV) build dist *.egg-info \
	  .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.run: setup.cfg pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=/path/to/it" >&2; exit 1; }
	@echo "setting up $(VENV) (once: 2.9 GB on disk, 0.7 GB to download, about three minutes) …"
	@$(PYTHON) -m venv $(VENV)
	$(call install,$(PINNED) '.[all]')

$(VENV)/.dev: $(VENV)/.run
	@echo "adding the development tools (0.3 GB on disk, about a minute) …"
	$(call install,$(PINNED) '.[dev]')

$(VENV)/.docs: $(VENV)/.run
	@echo "adding Sphinx (80 MB on disk, some seconds) …"
	$(call install,$(PINNED) '.[docs]')

$(VENV)/.peers: $(VENV)/.dev
	@echo "adding the libraries that nq is compared with (torch with CUDA, jax: 5 GB on disk, 2.8 GB to download) …"
	$(call install,$(PINNED) '.[peers]')

$(GPU_VENV)/.run: setup.cfg pyproject.toml
	@echo "setting up $(GPU_VENV) (once: 6.7 GB on disk, 3.5 GB to download) …"
	@$(PYTHON) -m venv $(@D)
	$(call install,'.[$(GPU_EXTRA)]')
