# Every target sets up what it needs: a virtual environment, the pinned dependencies, the native core.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt
NATIVE := CMakeLists.txt $(shell find native -name tests -prune -o -type f -print)
# Those of the environment, once it is set up, or else of the system.
CMAKE  := $(firstword $(wildcard $(BIN)/cmake) cmake)
CTEST  := $(firstword $(wildcard $(BIN)/ctest) ctest)

.PHONY: demo test test-native check sanitize bench bench-search bench-peers bench-store bench-service bench-postgres bench-spark test-spark figure2 soak clean help

help:
	@echo "make demo     train, store, search and find copies on bundled images; writes out/demo.png"
	@echo "make test     every test"
	@echo "make test-native  tests of the native core alone; they need CMake and a compiler, no Python (a minute)"
	@echo "make soak     100,000 random indexes against numpy, a million operations on a store; about an hour"
	@echo "make check    ruff, mypy, import rules"
	@echo "make sanitize tests of the native core and forged files, under the compiler's sanitizers"
	@echo "make bench    benchmarks; results go to benchmarks/results"
	@echo "make bench-search  search against faiss and usearch; results go to benchmarks/results (10 minutes)"
	@echo "make bench-peers  faiss' vector indexes on SIFT; results go to benchmarks/results (half an hour; built once)"
	@echo "make bench-store  a store: puts, openings, searches; results go to benchmarks/results (a minute or two)"
	@echo "make bench-service  a served store under load; results go to benchmarks/results (4 minutes)"
	@echo "make bench-postgres  a store in PostgreSQL beside pgvector; results go to benchmarks/results (10 minutes)"
	@echo "make test-spark  tests of the joins in Spark, which needs Java (PySpark: half a gigabyte)"
	@echo "make bench-spark  the self-join in Spark, DuckDB and native; results go to benchmarks/results (five minutes)"
	@echo "make figure2  the paper's figure 2; results go to benchmarks/results"
	@echo "make clean    remove the environment and everything built"

# Two stamps: dependencies change rarely and take a minute; the native core builds in seconds.
$(VENV)/.dependencies: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and alone, so that its pin is met before another package asks for it.
	@$(PIP) torch
	@$(PIP) scikit-build-core nanobind cmake ninja
	@$(PIP) --no-build-isolation --editable ".[dev]"
	@touch $@

$(VENV)/.installed: $(VENV)/.dependencies $(NATIVE)
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/hamtarget demo --out out

test: $(VENV)/.installed
	@$(BIN)/python -m pytest -n 2 tests

soak: $(VENV)/.installed
	@HAMTARGET_CASES=100000 $(BIN)/python -m pytest -n 2 tests/property/test_multi_naive.py
	@HAMTARGET_OPERATIONS=1000000 HAMTARGET_KILLS=200 $(BIN)/python -m pytest -n 2 \
	    tests/property/test_store_model.py tests/crash/test_store_kill.py -k "not postgres"
	@HAMTARGET_POSTGRES_OPERATIONS=100000 HAMTARGET_POSTGRES_KILLS=50 $(BIN)/python -m pytest -n 2 -k postgres \
	    tests/property/test_store_model.py tests/crash/test_store_postgres_kill.py

check: $(VENV)/.installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/unit/test_layering.py

# $(call native-tests,NAME,OPTIONS) builds the tests of the native core in build/NAME and runs them.
define native-tests
@$(CMAKE) -S . -B build/$(1) -DHAMTARGET_NATIVE_TESTS=ON $(2) > build/$(1).log || { cat build/$(1).log; exit 1; }
@$(CMAKE) --build build/$(1) --parallel 2 >> build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }
@$(CTEST) --test-dir build/$(1) --output-on-failure --parallel 2
endef

# These two need CMake and a compiler only. The first takes about a minute, the second about four.
test-native:
	@mkdir -p build
	$(call native-tests,native-tests)

# FUZZ_CASES in the environment is the number of cases for each file of a fuzzer.
sanitize:
	@mkdir -p build
	$(call native-tests,sanitize-address,-DHAMTARGET_SANITIZE=address)
	$(call native-tests,sanitize-thread,-DHAMTARGET_SANITIZE=thread)

bench: $(VENV)/.installed
	@$(BIN)/python benchmarks/loss_speed.py
	@$(BIN)/python benchmarks/step_speed.py

$(VENV)/.peers: $(VENV)/.installed
	@$(PIP) faiss-cpu usearch matplotlib
	@touch $@

bench-search: $(VENV)/.peers
	@$(BIN)/python benchmarks/search_speed.py --out benchmarks/results/search_speed.json

bench-peers: $(VENV)/.peers
	@$(BIN)/python benchmarks/sift_peers.py --cache out/peers --out benchmarks/results/sift_peers.json

bench-store: $(VENV)/.installed
	@$(BIN)/python benchmarks/store_speed.py --out benchmarks/results/store_speed.json

bench-service: $(VENV)/.installed
	@$(BIN)/python benchmarks/service_load.py --out benchmarks/results/service_load.json

bench-postgres: $(VENV)/.installed
	@$(BIN)/python benchmarks/postgres_speed.py --out benchmarks/results/postgres_speed.json

# Apart from the rest: PySpark is large and needs Java.
$(VENV)/.spark: $(VENV)/.installed
	@$(PIP) --no-build-isolation --editable ".[spark]" duckdb
	@touch $@

test-spark: $(VENV)/.spark
	@$(BIN)/python -m pytest tests/unit/test_spark.py

bench-spark: $(VENV)/.spark
	@$(BIN)/python benchmarks/spark_speed.py --out benchmarks/results/spark_speed.json

figure2: $(VENV)/.installed
	@$(BIN)/hamtarget paper figure2 --out benchmarks/results/figure2

clean:
	rm -rf $(VENV) build out .mypy_cache .pytest_cache .ruff_cache .hypothesis
