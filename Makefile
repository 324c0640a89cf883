# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# One process per test worker, one thread per process: two cores are best used this way.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo test test-portable lint bench soak clean

demo: $(VENV)/.installed
	$(BIN)/cscct compare lucir lucir+cscct --dataset digits

test: lint
	OMP_NUM_THREADS=1 $(PYTEST)

# All tests as other processors would run them: each rounds in its own way.
test-portable: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default $(PYTEST)
	OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST)
	OMP_NUM_THREADS=2 $(PYTEST)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Twenty kills a base instead of three.
soak: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 CSCCT_KILLS=20 $(BIN)/python -m pytest -n $(WORKERS) tests/runs/test_resume.py -k killed -v

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
	$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
