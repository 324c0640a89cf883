# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# One process per test worker, one thread per process: two cores are best used this way.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# The lowest versions that pyproject.toml allows; Ray's has no wheel for a newer Python than this.
LOWEST ?= .venv-lowest
LOWEST_PYTHON ?= python3.11

.PHONY: demo test check test-portable test-lowest lint docs build evidence pictures bench soak attack clean

# Images learned in two steps and classified, then a small comparison with a report: about three minutes.
demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: lint check

# All tests, without the linters.
check: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(PYTEST)

# All tests as other processors would run them: each rounds in its own way.
test-portable: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default $(PYTEST)
	OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST)
	OMP_NUM_THREADS=2 $(PYTEST)

# The same tests with the lowest versions that pyproject.toml allows. No linters: what types a library declares differs
# from version to version. On Linux the package index has torch 2.5 for CUDA only, so the first call fetches about 3 GB;
# an index with the CPU build (PIP_INDEX_URL or PIP_FIND_LINKS) spares that.
test-lowest: $(LOWEST)/.installed
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, with the reference from the docstrings, in build/docs. A warning is an error.
docs: $(VENV)/.installed-dev
	$(BIN)/python docs/settings_reference.py
	$(BIN)/python docs/methods_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Source distribution and wheel in dist/, and a check of their metadata.
build: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

# The tables and pictures of measured accuracies, from studies/records.
evidence: $(VENV)/.installed-dev
	$(BIN)/python studies/tables.py
	$(BIN)/python studies/leaderboard.py
	$(BIN)/python studies/figures.py

# The pictures in docs/images. Needs chromium; a few minutes.
pictures: $(VENV)/.installed-dev
	$(BIN)/python docs/serving_pictures.py
	$(BIN)/python docs/comparison_pictures.py

# Twenty kills of a run of every method, and of a classifier that learns.
soak: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 CSCCT_KILLS=20 $(BIN)/python -m pytest -n $(WORKERS) tests/runs/test_kills.py tests/cli/test_classifier.py -k killed -v

# Kills, damage and fuzzed inputs. The counts go to attack/results.json and from there to docs/reliability.md.
SEED ?= 1
attack: $(VENV)/.installed-dev
	$(BIN)/python attack/attack.py --seed $(SEED) --json attack/results.json
	$(BIN)/python attack/page.py

# A quarter of an hour on a quiet machine. Writes docs/performance.md.
bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py --json benchmarks/results.json
	$(BIN)/python benchmarks/page.py benchmarks/results.json

# torch comes first and pinned, so that nothing else can choose another build of it.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "cscct needs Python 3.11 or newer; name it with PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e '.[pretrained,serve]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	$(LOWEST_PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip --disable-pip-version-check install -q -c constraints-lowest.txt -e '.[ray,tensorboard,pretrained,onnx,serve,heif,video,pandas,tune,test]'
	@touch $@

clean:
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache
