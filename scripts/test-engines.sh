#!/usr/bin/env bash
# Tests the plug-ins inside the code of the engines themselves, on the CPU, and runs the example with
# Transformers. Packages come from PyPI by name, torch among them (some GiB), into build/engines.
#   scripts/test-engines.sh [version of SGLang...]
# What else SGLang and vLLM depend on is stubbed by the tests. Takes pando from PANDO_PYTHONPATH or
# build/release. Without a package index it says so, and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=("${@:-}")
[ -n "${versions[0]}" ] || versions=(0.5.13 0.5.16 0.5.18 0.5.20 0.5.21 0.5.23)
vllm=0.32.0
package=${PANDO_PYTHONPATH:-build/release/python}
if [ ! -d "$package/pando" ]; then
  echo "test-engines: skipped, there is no $package/pando: the Python package was not built"
  exit 0
fi

venv=build/engines/venv
mkdir -p build/engines
[ -x $venv/bin/python ] || python3 -m venv $venv
pip() { $venv/bin/python -m pip --disable-pip-version-check install --quiet "$@"; }
if ! pip torch numpy msgspec dill psutil pyzmq orjson requests cbor2 pytest hypothesis; then
  echo "test-engines: skipped, packages could not be installed (no package index?)"
  exit 0
fi
# test WHAT PATH... FILES: with the folders that WHAT is imported from.
test() { PYTHONPATH=$1 $venv/bin/python -m pytest -rs -p no:cacheprovider -W ignore "${@:2}"; }
# unpack NAME VERSION: without what it depends on.
unpack() { [ -d "build/engines/$1-$2/$1" ] || pip --no-deps --target "build/engines/$1-$2" "$1==$2"; }

for version in "${versions[@]}"; do
  if ! unpack sglang "$version"; then
    echo "test-engines: sglang $version could not be had: not tested"
    continue
  fi
  echo "test-engines: sglang $version"
  test "$package:build/engines/sglang-$version" python/tests/test_sglang_wheel.py \
    python/tests/test_sglang_contract.py
done
if unpack vllm $vllm; then
  echo "test-engines: vllm $vllm"  # whose tests bring a stand-in for torch
  PANDO_VLLM_SOURCES=build/engines/vllm-$vllm PYTHONPATH=$package \
    build/venv/bin/python -m pytest -rs -p no:cacheprovider python/tests/test_vllm_source.py
else
  echo "test-engines: vllm $vllm could not be had: not tested"
fi
echo "test-engines: stand-ins and examples with torch"
test "$package" python/tests/test_sglang.py python/tests/test_torch_ranks.py python/tests/test_cache.py \
  python/tests/test_pools.py
# Apart, because SGLang would find it and want the rest of what it needs.
apart=build/engines/transformers
[ -d $apart/transformers ] || pip --target $apart transformers
test "$package:$apart" python/tests/test_examples.py
