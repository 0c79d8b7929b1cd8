# Everything from a clean clone: `make demo`, `make test`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup demo federation-demo soak test check bench scale clean

setup: $(STAMP)

# torch goes first and by itself: where a CPU wheel is at hand for the pinned version, pip takes it.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("fedauc needs Python 3.11 or newer: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "installing into $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[dev,nvflare]'
	touch $@

# Real handwritten digits (shipped with scikit-learn), 80 % of the eights removed, 30 very uneven clients.
demo: setup
	rm -rf demo-run
	$(BIN)/fedauc compare --data digits --model linear --positive 8 \
	  --methods cycp-fedavg,cycp-minimax,cycp-pairwise --seeds 3 --jobs 2 \
	  --set remove_positives=0.8 --set partition=dirichlet --set clients=30 --set alpha=0.1 --out demo-run

# Four hospitals as separate processes; DATA=path/to/heart.csv takes real ones.
federation-demo: setup
	$(BIN)/python examples/federation_demo.py $(if $(DATA),--data "$(DATA)") --out runs/federation-demo

# Four hospitals as above, 300 rounds, a random fault every 20: some six minutes.
soak: setup
	$(BIN)/python -m benchmarks.faults --soak

# Fast tests first, then those marked slow and browser.
test: setup
	bash scripts/install-browser.sh
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser"
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "slow or browser"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

scale: setup
	$(BIN)/python -m benchmarks scale

clean:
	rm -rf $(VENV) .bench-env demo-run build dist *.egg-info src/*.egg-info
