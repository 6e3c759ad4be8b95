# Evidence: every figure of the documentation has a command here. PYTHON is the environment's.
PYTHON ?= .venv/bin/python
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export FLWR_TELEMETRY_ENABLED ?= 0
RESULTS := benchmarks/results

.PHONY: bench bench-quick guard scale profile reproduce reproduction audit-dependencies defaults

bench:  ## speed as ratios, the rounds of Ray and of a deployment too; docs/evidence/benchmarks.md
	$(PYTHON) -m benchmarks.ratios --out $(RESULTS)/ratios.json
	$(PYTHON) -m benchmarks.ratios --table docs/evidence/benchmarks.md

bench-quick:  ## the same without Ray and deployment
	$(PYTHON) -m benchmarks.ratios --skip rounds engines deployment

guard:  ## what CI checks
	$(PYTHON) -m benchmarks.guard

scale:  ## cost against size, with charts; docs/evidence/scale.md
	$(PYTHON) -m benchmarks.scale --out docs/evidence/images/scale
	$(PYTHON) -m benchmarks.scale --table docs/evidence/scale.md

profile:  ## where the time of a default run goes
	$(PYTHON) -m benchmarks.profile_run

reproduce:  ## the papers' figures at full size; days for all: NAME="fts-1a fed-pne" for some
	$(PYTHON) -m benchmarks.reproduce $(or $(NAME),all)

reproduction:  ## docs/evidence/reproduction.md and its charts, from the saved runs
	$(PYTHON) -m benchmarks.reproduce --table docs/evidence/reproduction.md

audit-dependencies:  ## known vulnerabilities (needs pip-audit and its database)
	$(PYTHON) -m benchmarks.audit_dependencies simulation

defaults:  ## docs/evidence/defaults.md from the saved runs of benchmarks/defaults.py
	$(PYTHON) -m benchmarks.defaults page
