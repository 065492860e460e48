# Targets for contributors; `make` alone lists them.

PYTHON ?= python3
BIN := .venv/bin
RUNNABLE := .venv/runnable
INSTALLED := .venv/installed
SOURCES := $(shell find plugins -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu')
LOCKED := --quiet --require-hashes --no-deps --only-binary :all:
NATIVE := CMakeLists.txt $(SOURCES) $(shell find plugins -name CMakeLists.txt)

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test attack docs pictures web fuzz ptxas lint format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED)  ## create .venv: the package (editable) and everything needed to train and test

$(RUNNABLE): LOCK := run
$(INSTALLED): LOCK := test

# Every package is pinned, and its file checked against the hashes in locks/. PyTorch is the build for CPUs if the package
# index has it, else the one with CUDA. Without build isolation nothing else is downloaded, and compiled objects can be
# reused by the next build.
$(RUNNABLE) $(INSTALLED): pyproject.toml $(wildcard locks/*.txt) $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv; the first time this takes a few minutes."
	$(BIN)/python -m pip install $(LOCKED) -r locks/$(LOCK).txt
	@$(if $(filter test,$(LOCK)),$(BIN)/python -m pip install $(LOCKED) -r locks/cpu.txt 2> .venv/pip.log || { \
		grep -q "No matching distribution" .venv/pip.log || { cat .venv/pip.log; exit 1; } >&2; \
		echo "The package index has no build of PyTorch for CPUs: installing the one with CUDA (several GB)."; \
		$(BIN)/python -m pip install $(LOCKED) -r locks/cuda.txt; })
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $(RUNNABLE) $@

lock:  ## write the lock files again, after a change of constraints.txt; needs uv
	$(PYTHON) locks/update.py $(WHEELS)

demo: $(RUNNABLE)  ## install what is needed to run models; generate a text and a tune, run a short benchmark
	$(BIN)/vcdeploy sample --prime "The prime min" --show-compute
	$(BIN)/vcdeploy sample irish --seed 1 -o runs/demo/tune.abc
	$(BIN)/vcdeploy sample irish --seed 1 -o runs/demo/tune.mid
	@cat runs/demo/tune.abc
	$(BIN)/vcdeploy bench english --quick --engines native

test: setup  ## run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal

attack: setup  ## attack files, the engine, and commands while they write; under 20 minutes on two cores
	$(BIN)/python tests/attack

docs: setup  ## build the documentation site in build/site; open build/site/index.html
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

pictures: setup  ## draw the pictures in the README
	$(BIN)/python docs/pictures/sample.py

# The file is committed: with Debian 12's emscripten 3.1.6 the same sources give the same bytes.
web: setup  ## compile the kernels to WebAssembly for the web page; needs emscripten
	@command -v emcmake > /dev/null || { echo "emscripten is missing; on Debian: apt-get install emscripten" >&2; exit 1; }
	emcmake $(BIN)/cmake -S . -B build/web -G Ninja -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) > /dev/null
	$(BIN)/cmake --build build/web --target engine
	cp build/web/plugins/web/engine.wasm vcdeploy/serving/page/engine.wasm

# libFuzzer needs Clang. Seconds for each of its targets, and for the race detector.
CLANG ?= clang++
SECONDS_EACH ?= 120
SANITIZED = $(BIN)/cmake -S . -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)

fuzz: setup  ## load thousands of damaged model files, attack the kernels and the custom op, look for races; with sanitizers
	$(SANITIZED) -B build/fuzzer -DVCDEPLOY_SANITIZE=fuzzer -DCMAKE_CXX_COMPILER=$(CLANG)
	$(BIN)/cmake --build build/fuzzer
	mkdir -p build/fuzzer/found
	for target in inference training custom_op; do \
		build/fuzzer/plugins/fuzz/fuzz_$$target -max_total_time=$(SECONDS_EACH) -max_len=600 -len_control=0 \
			-print_final_stats=1 -artifact_prefix=build/fuzzer/found/$$target- || exit 1; \
	done
	$(SANITIZED) -B build/thread -DVCDEPLOY_SANITIZE=thread
	$(BIN)/cmake --build build/thread
	build/thread/plugins/fuzz/races $(SECONDS_EACH)
	$(SANITIZED) -B build/sanitize -DVCDEPLOY_SANITIZE=ON \
		-DPython_EXECUTABLE=$(abspath $(BIN)/python) -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build build/sanitize
	$(BIN)/python tests/fuzz.py --count 3000 --module build/sanitize/plugins/cpu/_native*.so
	$(BIN)/python tests/fuzz.py --count 500 --kind checkpoint
	$(BIN)/python tests/fuzz.py --count 300 --backend onnxruntime
	$(BIN)/python tests/fuzz.py --count 300 --backend torch

# Takes minutes for all architectures. The tests recompile only if the sources have changed since.
ptxas:  ## compile the CUDA kernels for every GPU architecture and write docs/results/ptxas.md; needs nvcc
	mkdir -p build
	$(PYTHON) plugins/tensorrt/ptxas.py > build/ptxas.md
	mv build/ptxas.md docs/results/ptxas.md

lint: setup  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(SOURCES)
	rm -rf build/layers && mkdir -p build/layers
	cp -r vcdeploy build/layers/vcdeploy
	cp -r export bench build/layers/vcdeploy/
	cd build/layers && PYTHONPATH=$$($(abspath $(BIN)/python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		$(abspath $(BIN)/python) -S -c 'from importlinter.cli import lint_imports_command as run; run()' \
		--config $(abspath pyproject.toml) --no-cache

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SOURCES)

clean:  ## remove build outputs, including .venv
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
