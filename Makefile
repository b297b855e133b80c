# Everything happens in a virtual environment below .venv, made on first use. `make demo` and `make test` stand alone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pip would compile all modules on one core; see below.
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
PIP := $(BIN)/python $(INSTALL)
RUN := OMP_NUM_THREADS=1 $(BIN)/python
# In the order of tests/conftest.py: files of slow tests first, so that the processes end at the same time.
TEST := $(RUN) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
ORACLES := $(VENV)/oracles/bin/python

.PHONY: demo test check lint types style fast plain hostile bench oracles trainers other-trainers format docs clean

demo: $(VENV)/airrep  ## index, attribute, select and report on real data that comes with airrep
	$(BIN)/airrep demo --out airrep-demo

test: $(VENV)/dev  ## the full test suite
	$(TEST)

fast: $(VENV)/dev  ## the test suite without the slow tests
	$(TEST) -m "not slow"

COMPUTING := $(addprefix tests/,answers attributors encoder evaluation lm scoring training)
# What of these rooms works on texts, files and processes alone.
NOT_COMPUTING := $(addprefix --ignore=tests/,answers/likeness answers/test_proof.py answers/test_reading.py \
	answers/test_dropped.py attributors/gradient/test_conversations.py attributors/test_methods.py \
	attributors/test_installed.py attributors/test_recipes.py attributors/text/test_places.py \
	attributors/test_precomputed.py encoder/networks/test_checkpoints.py encoder/test_prompts.py evaluation/test_prove.py \
	evaluation/test_select.py evaluation/test_given.py lm/folders lm/trainer_records lm/test_chat.py \
	lm/test_files.py lm/test_messages.py lm/test_settings.py)

plain: $(VENV)/dev  ## the fast tests of what computes, with the processor's newer instruction sets held back
	env $$($(BIN)/python tests/worlds/plain_processor.py) $(TEST) -m "not slow" $(NOT_COMPUTING) $(COMPUTING)

check: lint fast  ## format, lint, types, layers, dependencies, fast tests

lint: types style  ## format, lint, types, layers, dependencies, and counts that may not rise

types: $(VENV)/dev
	$(BIN)/mypy

style: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/deptry src
	$(BIN)/python .ci/counts.py

hostile: $(VENV)/dev  ## the long form of the campaign of kills and damage, at most 40 minutes on two cores
	AIRREP_HOSTILE=long $(RUN) -m pytest --numprocesses auto --dist load --maxschedchunk 1 tests/hostile

bench: $(VENV)/bench  ## speed and memory against plain references, as ratios of process CPU time
	$(RUN) benchmarks/reading.py
	$(RUN) benchmarks/text_path.py --texts 2000
	$(RUN) benchmarks/encode.py
	$(RUN) benchmarks/groups.py
	$(RUN) benchmarks/lds.py
	$(RUN) benchmarks/topk.py
	$(RUN) benchmarks/channels.py
	$(RUN) benchmarks/opening.py
	$(RUN) benchmarks/exploring.py --channels
	$(RUN) benchmarks/finetune.py --rounds 2
	$(RUN) benchmarks/farm.py --subsets 10
	$(RUN) benchmarks/engines.py
	$(RUN) benchmarks/training.py --rounds 2
	$(RUN) benchmarks/gradients.py --count 12
	PYTHONPATH=tests $(RUN) benchmarks/planted.py

trainers: $(VENV)/trainers/ready  ## tokens, what counts and losses of preferences against trl's own code
	OMP_NUM_THREADS=1 $(VENV)/trainers/bin/python -W ignore oracles/trl_tokens.py
	OMP_NUM_THREADS=1 $(VENV)/trainers/bin/python -W ignore oracles/trl_losses.py

other-trainers: $(VENV)/other-trainers/ready  ## the same against axolotl, LLaMA-Factory and ms-swift
	OMP_NUM_THREADS=1 $(VENV)/other-trainers/bin/python -W ignore oracles/other_tokens.py axolotl
	OMP_NUM_THREADS=1 $(VENV)/other-trainers/bin/python -W ignore oracles/other_tokens.py llamafactory
	OMP_NUM_THREADS=1 $(VENV)/other-trainers/bin/python -W ignore oracles/other_tokens.py ms-swift

oracles: $(VENV)/oracles/ready  ## gradient methods and DSIR against captum, kronfluence, bergson, traker and data-selection
	OMP_NUM_THREADS=1 $(ORACLES) -W ignore oracles/tracin.py
	OMP_NUM_THREADS=1 $(ORACLES) -W ignore oracles/kfac.py
	OMP_NUM_THREADS=1 $(ORACLES) -W ignore oracles/ekfac.py
	OMP_NUM_THREADS=1 $(ORACLES) -W ignore oracles/metagradient.py
	OMP_NUM_THREADS=1 $(ORACLES) -W ignore oracles/traker.py
	OMP_NUM_THREADS=1 $(ORACLES) -W ignore oracles/dsir.py

format: $(VENV)/dev  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/docs  ## the commands' own help, maps of rooms, and the site with all links checked, in site/
	$(BIN)/python docs/build.py
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) airrep-demo dist

# The base alone: what reads text, without torch.
$(VENV)/airrep: constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "airrep needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --editable .
	touch $@

# PyTorch first and by itself: its CPU build is named in constraints.txt, and all else then finds it installed.
$(VENV)/dev: $(VENV)/airrep
	$(PIP) torch
	$(PIP) --editable ".[all]" --group dev
	-$(BIN)/python -W ignore -m compileall -q -j 0 -x '/(rllib|tests)/' $(VENV)/lib > /dev/null 2>&1
	touch $@

$(VENV)/docs: $(VENV)/dev
	$(PIP) --group docs
	touch $@

$(VENV)/bench: $(VENV)/dev
	$(PIP) --group bench
	touch $@

# An environment of its own: libraries that airrep is held against shall not decide what it is developed with.
$(VENV)/oracles/ready: constraints.txt pyproject.toml oracles/requirements.txt oracles/no-deps.txt
	$(PYTHON) -m venv $(VENV)/oracles
	$(ORACLES) $(INSTALL) --upgrade "pip>=25.1"
	$(ORACLES) $(INSTALL) torch
	$(ORACLES) $(INSTALL) --editable ".[encoders]"
	$(ORACLES) $(INSTALL) --requirement oracles/requirements.txt
	$(ORACLES) $(INSTALL) --no-deps --requirement oracles/no-deps.txt
	touch $@

# Another environment: trl asks for versions of its own.
$(VENV)/other-trainers/ready: constraints.txt pyproject.toml oracles/other_trainers.txt oracles/trainers_alone.txt
	$(PYTHON) -m venv $(VENV)/other-trainers
	$(VENV)/other-trainers/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)/other-trainers/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(VENV)/other-trainers/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[encoders]"
	$(VENV)/other-trainers/bin/python -m pip install --quiet --requirement oracles/other_trainers.txt
	$(VENV)/other-trainers/bin/python -m pip install --quiet --no-deps --requirement oracles/trainers_alone.txt
	touch $@

$(VENV)/trainers/ready: constraints.txt pyproject.toml oracles/trainers.txt
	$(PYTHON) -m venv $(VENV)/trainers
	$(VENV)/trainers/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)/trainers/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(VENV)/trainers/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[encoders]"
	$(VENV)/trainers/bin/python -m pip install --quiet --constraint constraints.txt --requirement oracles/trainers.txt
	touch $@
