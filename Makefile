# Everything starts here: `make run` and `make test` install what is missing, build and go.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
JOBS ?= $(shell nproc)
# Checkouts at different places share what ccache has compiled.
export CCACHE_BASEDIR = $(CURDIR)
export CCACHE_NOHASHDIR = 1
SOURCES = $(shell git ls-files '*.cc' '*.h' '*.cu')

.PHONY: help run test release bench bench-smoke bench-store bench-python wheel test-wheel test-engines test-engines-core test-slow gpu-test gpu-bench gpu-engines format format-check lint python-env asan tsan fuzz consume clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

run: release  ## build, then replay a generated chat workload with real bytes through device, host and files
	rm -rf build/run && mkdir -p build/run
	build/release/pando gen chat --requests 3000 -o build/run/chat.jsonl
	build/release/pando replay build/run/chat.jsonl --page 64 --bytes --device 3% --host 10% --store 40% --store-at file:build/run/store --json build/run/results.json --report build/run/report.html
	@echo "report: $(CURDIR)/build/run/report.html"

release: deps-build configure-release  ## build everything; the command is build/release/pando
	cmake --build --preset release -j $(JOBS)

test: release  ## build and run every test but the slow ones
	ctest --preset release -j $(JOBS)

test-slow: release  ## the tests that take minutes: a store's process killed 200 times
	ctest --test-dir build/release -L slow --output-on-failure

bench: release  ## run the benchmarks; JSON goes to build/release/bench.json
	build/release/pando-bench --benchmark_out=build/release/bench.json --benchmark_out_format=json
	scripts/bench-bars.py build/release/bench.json

bench-smoke: release  ## run each benchmark once, to see that it works
	build/release/pando-bench --benchmark_min_time=0 >/dev/null
	[ ! -d build/venv ] || PYTHONPATH=build/release/python build/venv/bin/python python/bench/run.py build/release/bench-smoke.json --once >/dev/null

bench-store: release  ## run the benchmarks of stores in PANDO_BENCH_DIR (default /tmp, 24 GiB); JSON goes to build/release/bench-store.json
	build/release/pando-store-bench --benchmark_out=build/release/bench-store.json --benchmark_out_format=json
	scripts/bench-bars.py --store build/release/bench-store.json

bench-python: release  ## the Python package against C++ and a pure-Python cache, its manager against vLLM's; JSON goes to build/release/bench-python.json and bench-offload.json
	PYTHONPATH=build/release/python build/venv/bin/python python/bench/run.py build/release/bench-python.json
	scripts/bench-offload.sh

wheel: deps-build python-env  ## build a wheel into build/wheels
	[ ! -d build/venv ] || build/venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheels .

test-wheel: wheel  ## install the wheel into an environment of its own and run the quick tests there
	scripts/test-wheel.sh

test-engines: release wheel  ## whole engines of SGLang and vLLM on the CPU with and without Pando, every version and configuration; vLLM's own tests with Pando's classes; the plug-ins inside their code (downloads some GiB)
	scripts/test-engines.sh

test-engines-core: release wheel  ## the part of test-engines that every change runs
	scripts/test-engines.sh core

gpu-engines:  ## on a machine with a GPU: SGLang and vLLM with and without Pando on the same requests; JSON goes to build/release/bench-engines.json
	scripts/gpu-engines.sh

gpu-test: release  ## on a machine with a GPU: its tests, then the same under compute-sanitizer
	build/release/tests/gpu_test --gtest_brief=1
	compute-sanitizer --tool memcheck --error-exitcode 1 build/release/tests/gpu_test --gtest_brief=1

gpu-bench: release  ## on a machine with a GPU: its benchmarks; JSON goes to build/release/bench-gpu.json
	build/release/pando-gpu-bench --benchmark_out=build/release/bench-gpu.json --benchmark_out_format=json
	scripts/bench-bars.py --gpu build/release/bench-gpu.json

asan: deps-build configure-asan  ## all tests with the address, leak and undefined-behaviour sanitizers
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)

tsan: deps-build configure-tsan  ## all tests with the thread sanitizer
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan -j $(JOBS)

fuzz: deps-fuzz configure-fuzz  ## fuzz the cache against its reference for FUZZ_SECONDS (default 60)
	cmake --build --preset fuzz -j $(JOBS)
	mkdir -p build/fuzz/corpus
	build/fuzz/cache_fuzz -max_total_time=$(or $(FUZZ_SECONDS),60) -max_len=4096 -artifact_prefix=build/fuzz/ -print_final_stats=1 build/fuzz/corpus

consume: release  ## install to a scratch folder and build a project that uses find_package(pando)
	scripts/check-install.sh

format: deps-lint  ## rewrite sources in the project's style
	clang-format -i $(SOURCES)

format-check: deps-lint  ## fail if a source is not in the project's style
	clang-format --dry-run --Werror $(SOURCES)

lint: deps-lint configure-release  ## clang-tidy over the library and the tools
	clang-tidy --quiet -p build/release $(filter src/%.cc tools/%.cc,$(SOURCES)) 2> >(grep -v "warnings generated" >&2)

configure-%: python-env
	cmake --preset $* >/dev/null

python-env:
	scripts/python-env.sh

deps-%:
	scripts/bootstrap.sh $*

clean:  ## remove everything that was built
	rm -rf build
