# Every target sets up what it needs: a virtual environment, the pinned dependencies, the native core.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt
# An installation knows where each module lay: one that has moved is found after the next.
FOLDERS := $(shell find src -type d -not -name __pycache__)
NATIVE := CMakeLists.txt $(shell find native -name tests -prune -o -type f -print)
# Those of the environment, once it is set up, or else of the system.
CMAKE  := $(firstword $(wildcard $(BIN)/cmake) cmake)
CTEST  := $(firstword $(wildcard $(BIN)/ctest) ctest)

.PHONY: help demo clean check test test-quick test-native test-arm test-spark spark sanitize sanitize-quick \
        coverage docs tutorials wheels test-wheel sbom hashes test-portable soak soak-search soak-operations \
        soak-kills soak-power soak-service bench bench-search bench-neighbors bench-store bench-service \
        bench-service-against bench-postgres bench-spark figure2

help:
	@echo "See it work"
	@echo "  make demo            train, store, search and find copies on bundled images; writes out/demo.png"
	@echo ""
	@echo "Check a change"
	@echo "  make check           lint, types, import rules, public names (a minute)"
	@echo "  make test-quick      the fast tests: no server, nothing marked slow (a minute)"
	@echo "  make test-native     the native core alone; needs CMake and a compiler, no Python (a minute)"
	@echo "  make test            every test"
	@echo ""
	@echo "Check more"
	@echo "  make soak            the long forms of the tests, one after another (about 2 hours and a half):"
	@echo "    make soak-search       100,000 random indexes against numpy (with the next: an hour)"
	@echo "    make soak-operations   a million random operations on a store, 100,000 in PostgreSQL"
	@echo "    make soak-kills        1,000 killed writers, 2,000 killed saves, 50 kills of PostgreSQL (15 minutes)"
	@echo "    make soak-power        a loss of power in 10,000 states of a store (10 minutes)"
	@echo "    make soak-service      mixed load on a service: memory flat within 1%, no 5xx (an hour)"
	@echo "  make sanitize        the native core and forged files under the compiler's sanitizers (4 minutes)"
	@echo "  make sanitize-quick  a part of it: fewer forged files and random indexes, no threads (2 minutes)"
	@echo "  make test-portable   the native core without AVX, and searches by it from Python (5 minutes)"
	@echo "  make test-arm        the native core for arm64, by a cross compiler and an emulator (10 minutes)"
	@echo "  make test-spark      the joins in Spark; installs PySpark (half a gigabyte) and needs Java;"
	@echo "                       after \`make spark\`, which only installs it, make test has them, too"
	@echo ""
	@echo "Release"
	@echo "  make docs            the site, into build/site; warnings and broken links are errors"
	@echo "  make tutorials       run the notebooks of docs/tutorials again and keep what they print"
	@echo "  make wheels          wheels and a source distribution, into dist"
	@echo "  make test-wheel      install a wheel where there is no compiler, and test what was installed"
	@echo "  make coverage        lines and branches that the quick tests run"
	@echo "  make sbom            what the extra [all] installs, as a bill of materials: build/sbom.json; after \`make wheels\`"
	@echo "  make hashes          write requirements/*.txt again, after a change of constraints.txt"
	@echo ""
	@echo "Measure speed; results go to research/results"
	@echo "  make bench           the loss and a training step"
	@echo "  make bench-search    search, beside faiss and usearch (10 minutes)"
	@echo "  make bench-neighbors nearest neighbours of vectors, beside seven libraries (built indexes are kept: the first run"
	@echo "                       takes long); WORDS=FILE.npy PHOTOS=DIR CACHE=DIR SETS='sift words'"
	@echo "  make bench-store     a store: put, open, search (2 minutes)"
	@echo "  make bench-service   a served store under load (4 minutes)"
	@echo "  make bench-service-against OLD=path   the same load on two checkouts, in turns (10 minutes; needs wrk)"
	@echo "  make bench-postgres  a store in PostgreSQL, beside pgvector (10 minutes)"
	@echo "  make bench-spark     the self-join in Spark, DuckDB and the native core (5 minutes)"
	@echo "  make figure2         figure 2 of the paper; python -m research --help lists the others"
	@echo ""
	@echo "  make clean           remove the environment and everything built"

# Two stamps: dependencies change rarely and take a minute; the native core builds in seconds.
$(VENV)/.dependencies: pyproject.toml constraints.txt packages/models/pyproject.toml
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch comes first and alone, so that its pin holds before another package asks for it.
	@$(PIP) torch
	@# pdqhash has no wheel for some systems; its build wants an environment of its own.
	@$(PIP) scikit-build-core nanobind cmake ninja pdqhash
	@$(PIP) --no-build-isolation ./packages/models
	@$(PIP) --no-build-isolation --editable ".[dev]"
	@touch $@

$(VENV)/.installed: $(VENV)/.dependencies $(NATIVE) $(FOLDERS)
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/hamtarget demo --out out

test: $(VENV)/.installed
	@$(BIN)/python -m pytest -n 2 tests

# Of the stores, only those in folders: a server takes longer.
test-quick: $(VENV)/.installed
	@$(BIN)/python -m pytest -n 2 -m "not slow and not postgres" tests/unit tests/golden tests/stores

soak: soak-search soak-operations soak-kills soak-power soak-service

soak-search: $(VENV)/.installed
	@HAMTARGET_CASES=100000 $(BIN)/python -m pytest -n 2 tests/property/test_multi_naive.py
	@HAMTARGET_CASES=10000 $(BIN)/python -m pytest -n 2 tests/property/test_filters_naive.py
	@HAMTARGET_CASES=100000 $(BIN)/python -m pytest -n 2 tests/property/test_probing_naive.py

soak-operations: $(VENV)/.installed
	@HAMTARGET_OPERATIONS=1000000 HAMTARGET_POSTGRES_OPERATIONS=100000 $(BIN)/python -m pytest -n 2 \
	    tests/property/test_store_model.py

soak-kills: $(VENV)/.installed
	@HAMTARGET_KILLS=1000 HAMTARGET_SOAK=1 HAMTARGET_POSTGRES_KILLS=50 $(BIN)/python -m pytest -n 2 \
	    tests/crash/test_store_kill.py tests/crash/test_save.py tests/crash/test_store_postgres_kill.py

# Prints how many crash points and distinct states there were.
soak-power: $(VENV)/.installed
	@HAMTARGET_CRASH_POINTS=10000 $(BIN)/python -m pytest -rP tests/crash/test_power.py tests/crash/test_power_disk.py

soak-service: $(VENV)/.installed
	@$(BIN)/python -m research.benchmarks.service_soak --seconds 3600 --workers 2 --out out/service_soak.json

check: $(VENV)/.installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/unit/test_layering.py tests/unit/test_public_names.py tests/unit/test_docstrings.py

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

# The core as a CPU without AVX runs it. The second part installs it into an environment that takes all else from .venv, whose
# own hamtarget is passed over: a path does not read the .pth file that an editable installation is.
PORTABLE := build/portable
test-portable: $(VENV)/.installed
	@mkdir -p build
	$(call native-tests,portable-tests,-DHAMTARGET_PORTABLE=ON)
	@rm -rf $(PORTABLE) && $(BIN)/python -m venv --without-pip $(PORTABLE)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	    > "$$($(PORTABLE)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/others.pth"
	@$(PORTABLE)/bin/python -m pip --quiet --disable-pip-version-check install --ignore-installed --no-deps --no-build-isolation \
	    --config-settings build-dir=build/portable-module --config-settings cmake.define.HAMTARGET_PORTABLE=ON .
	@$(PORTABLE)/bin/python -c "import sys; from hamtarget import _native; sys.exit(_native.kernels() != ['portable'])"
	@$(PORTABLE)/bin/python -m pytest -n 2 -m "not slow and not postgres" tests/unit/search tests/unit/store tests/golden \
	    tests/property/test_multi_naive.py tests/property/test_probing_naive.py

# The unit tests of the core for another processor, by an emulator. On Debian: apt install g++-aarch64-linux-gnu qemu-user
test-arm:
	@mkdir -p build
	@$(CMAKE) -S . -B build/test-arm -DHAMTARGET_NATIVE_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	    "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu" > build/test-arm.log \
	    || { cat build/test-arm.log; exit 1; }
	@$(CMAKE) --build build/test-arm --parallel 2 >> build/test-arm.log 2>&1 || { cat build/test-arm.log; exit 1; }
	@$(CTEST) --test-dir build/test-arm --output-on-failure --label-regex unit

# FUZZ_CASES in the environment is the number of cases for each file of a fuzzer.
sanitize:
	@mkdir -p build
	$(call native-tests,sanitize-address,-DHAMTARGET_SANITIZE=address)
	$(call native-tests,sanitize-thread,-DHAMTARGET_SANITIZE=thread)

# What a change of the core breaks first, in the build folder of the whole: few random lives of an index, few forged files.
QUICK_TESTS := test_snapshot test_neighbors fuzz_index fuzz_snapshot
sanitize-quick: export ASAN_OPTIONS := detect_leaks=1:max_allocation_size_mb=2048:detect_stack_use_after_return=1
sanitize-quick: export FUZZ_CASES ?= 100
sanitize-quick:
	@mkdir -p build
	@$(CMAKE) -S . -B build/sanitize-address -DHAMTARGET_NATIVE_TESTS=ON -DHAMTARGET_SANITIZE=address > build/sanitize-quick.log \
	    || { cat build/sanitize-quick.log; exit 1; }
	@$(CMAKE) --build build/sanitize-address --parallel 2 --target test_index $(QUICK_TESTS) >> build/sanitize-quick.log 2>&1 \
	    || { cat build/sanitize-quick.log; exit 1; }
	@build/sanitize-address/native/tests/test_index 3
	@$(CTEST) --test-dir build/sanitize-address --output-on-failure --parallel 2 \
	    --tests-regex '^($(subst $(eval) ,|,$(QUICK_TESTS)))$$'

bench: $(VENV)/.installed
	@$(BIN)/python -m research.benchmarks.loss_speed
	@$(BIN)/python -m research.benchmarks.step_speed

$(VENV)/.peers: $(VENV)/.installed
	@$(PIP) faiss-cpu usearch matplotlib
	@touch $@

bench-search: $(VENV)/.peers
	@$(BIN)/python -m research.benchmarks.search_speed --out research/results/search_speed.json

# Of the other libraries, those that this system has; the benchmark names those that are missing.
$(VENV)/.neighbors: $(VENV)/.peers
	@for package in hnswlib rabitqlib scalable-vs scann voyager; do $(PIP) $$package || echo "$$package cannot be installed"; done
	@touch $@

CACHE ?= out/neighbors
bench-neighbors: $(VENV)/.neighbors
	@$(BIN)/python -m research.benchmarks.neighbors $(SETS) --cache "$(CACHE)" $(if $(WORDS),--words "$(WORDS)") \
	    $(if $(PHOTOS),--photos "$(PHOTOS)")

bench-store: $(VENV)/.installed
	@$(BIN)/python -m research.benchmarks.store_speed --out research/results/store_speed.json

bench-service: $(VENV)/.installed
	@$(BIN)/python -m research.benchmarks.service_load --out research/results/service_load.json

# The other checkout needs an installed environment in its .venv.
bench-service-against: $(VENV)/.installed
	@test -x "$(OLD)/.venv/bin/python" || { echo "OLD=path: a checkout with an environment in .venv"; exit 2; }
	@$(BIN)/python -m research.benchmarks.service_against --other "$(OLD)" --seconds 6 \
	    --out research/results/service_against.json
	@$(BIN)/python -m research.benchmarks.service_small --other "$(OLD)" --seconds 8 \
	    --out research/results/service_small.json

bench-postgres: $(VENV)/.installed
	@$(BIN)/python -m research.benchmarks.postgres_speed --out research/results/postgres_speed.json

# Installed apart, because PySpark is large and needs Java.
$(VENV)/.spark: $(VENV)/.installed
	@$(PIP) --no-build-isolation --editable ".[spark]" duckdb
	@touch $@

spark: $(VENV)/.spark

test-spark: $(VENV)/.spark
	@$(BIN)/python -m pytest tests/spark

bench-spark: $(VENV)/.spark
	@$(BIN)/python -m research.benchmarks.spark_speed --out research/results/spark_speed.json

figure2: $(VENV)/.installed
	@$(BIN)/python -m research figure2 --out research/results/figure2

# What builds and checks wheels has an environment of its own, of files whose hashes are known.
TOOLS  := build/tools
HASHED := -m pip --quiet --disable-pip-version-check install --only-binary :all: --require-hashes
$(TOOLS)/.ready: requirements/build.txt
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python $(HASHED) -r requirements/build.txt
	@touch $@

# $(call hashes,NAME,INPUTS) writes requirements/NAME.txt: the versions of constraints.txt, with the hashes of all their files.
define hashes
@build/uv/bin/uv pip compile --quiet --upgrade --python-version 3.11 --python-platform linux --constraint constraints.txt \
    --generate-hashes --no-annotate --custom-compile-command "make hashes" --output-file requirements/$(1).txt $(2) > /dev/null
endef

# uv comes without hashes here: it is what makes them.
hashes:
	@test -x build/uv/bin/python || $(PYTHON) -m venv build/uv
	@build/uv/bin/python -m pip --quiet --disable-pip-version-check install -c constraints.txt uv
	$(call hashes,build,requirements/build.in)
	$(call hashes,serve,--extra cli --extra onnx --extra postgres --extra serve --extra text --extra vision pyproject.toml)

# Names or paths of interpreters, a wheel for each; those that are not installed are skipped.
WHEEL_PYTHONS ?= python3.11 python3.12 python3.13 python3.14
MAX_WHEEL_BYTES := 10000000
wheels: export PATH := $(CURDIR)/$(TOOLS)/bin:$(PATH)
wheels: $(TOOLS)/.ready
	@rm -rf dist build/wheels && mkdir -p dist build/wheels
	@# Without isolation: nothing is fetched but requirements/build.txt.
	@for project in . packages/models; do \
	    $(TOOLS)/bin/python -m build --no-isolation --sdist --outdir dist $$project > build/wheels/source.log 2>&1 \
	        || { cat build/wheels/source.log; exit 1; }; \
	done
	@$(TOOLS)/bin/python -m build --no-isolation --wheel --outdir dist packages/models > build/wheels/models.log 2>&1 \
	    || { cat build/wheels/models.log; exit 1; }
	@# From the source distribution, so that it is known to build.
	@for python in $(WHEEL_PYTHONS); do \
	    $$python -c '' 2> /dev/null || { echo "$$python is not installed: no wheel for it"; continue; }; \
	    rm -rf build/wheels/venv && $$python -m venv build/wheels/venv || exit 1; \
	    build/wheels/venv/bin/python $(HASHED) -r requirements/build.txt || exit 1; \
	    PATH="$(CURDIR)/build/wheels/venv/bin:$$PATH" build/wheels/venv/bin/python -m pip --disable-pip-version-check wheel --quiet \
	        --no-build-isolation --no-deps --wheel-dir build/wheels dist/hamtarget-[0-9]*.tar.gz || exit 1; \
	done
	@for wheel in build/wheels/*.whl; do $(TOOLS)/bin/auditwheel repair --wheel-dir dist $$wheel > build/wheels/audit.log 2>&1 || { cat build/wheels/audit.log; exit 1; }; done
	@ls -l dist | awk 'NR > 1 {printf "%6.1f MB  %s\n", $$5 / 1e6, $$9}'
	@! find dist -name '*.whl' -size +$(MAX_WHEEL_BYTES)c | grep . || { echo "larger than $(MAX_WHEEL_BYTES) bytes"; exit 1; }

# WHEEL_PYTHON is the interpreter to install it for. It needs `make wheels` first.
WHEEL_PYTHON ?= $(PYTHON)
test-wheel:
	@bash packages/test_wheel.sh "$(WHEEL_PYTHON)" dist

# The packages of the extra [docs]; not the extra itself, which would build the native core once more.
$(VENV)/.docs: $(VENV)/.installed
	@$(PIP) ipykernel mkdocs-material "mkdocstrings[python]" nbclient
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir build/site
	@echo "build/site/index.html"

tutorials: $(VENV)/.docs
	@$(BIN)/python docs/tutorials/run.py

coverage: $(VENV)/.installed
	@$(PIP) coverage
	@$(BIN)/python -m coverage run -m pytest -n 0 -m "not slow and not postgres" tests/unit tests/golden tests/stores
	@$(BIN)/python -m coverage report

# It needs `make wheels` first, as test-wheel does.
sbom: $(TOOLS)/.ready
	@ls dist/hamtarget-[0-9]*.whl > /dev/null 2>&1 || { echo "there is no wheel in dist: make wheels first"; exit 1; }
	@$(TOOLS)/bin/python -m pip --quiet --disable-pip-version-check install -c constraints.txt cyclonedx-bom
	@# Without pip, which would stand in the bill, although nothing installs it.
	@rm -rf build/sbom && $(PYTHON) -m venv --without-pip build/sbom
	@$(TOOLS)/bin/python -m pip --python build/sbom/bin/python --quiet --disable-pip-version-check install -c constraints.txt \
	    --only-binary hamtarget,hamtarget-models --find-links dist "hamtarget[all]"
	@$(TOOLS)/bin/cyclonedx-py environment --output-reproducible --output-file build/sbom.json build/sbom/bin/python
	@echo build/sbom.json

clean:
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
