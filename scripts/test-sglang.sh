#!/usr/bin/env bash
# Tests the SGLang plug-in inside SGLang's own code, on the CPU, for several of its versions:
#   scripts/test-sglang.sh [version...]
# Makes build/sglang-venv with torch and the few small packages that SGLang's cache code needs; what
# else SGLang depends on is stubbed by the tests. Takes pando from PANDO_PYTHONPATH or build/release.
# Without a package index it says so, and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=("${@:-}")
[ -n "${versions[0]}" ] || versions=(0.5.13 0.5.16 0.5.20 0.5.23)
package=${PANDO_PYTHONPATH:-build/release/python}
[ -d "$package/pando" ] || { echo "test-sglang: no $package/pando: build the Python module first" >&2; exit 1; }

venv=build/sglang-venv
[ -x $venv/bin/python ] || python3 -m venv $venv
pip() { $venv/bin/python -m pip --disable-pip-version-check install --quiet "$@"; }
if ! pip torch numpy msgspec dill psutil pyzmq orjson requests pytest hypothesis; then
  echo "test-sglang: packages could not be installed (no package index?): nothing was tested"
  exit 0
fi

for version in "${versions[@]}"; do
  target=build/sglang/$version
  if [ ! -d "$target/sglang" ] && ! pip --no-deps --target "$target" "sglang==$version"; then
    echo "test-sglang: sglang $version could not be installed: not tested"
    continue
  fi
  echo "test-sglang: sglang $version"
  PYTHONPATH=$package:$target $venv/bin/python -m pytest -p no:cacheprovider -W ignore \
    python/tests/test_sglang_wheel.py
done
PYTHONPATH=$package $venv/bin/python -m pytest -p no:cacheprovider \
  python/tests/test_sglang.py python/tests/test_torch_ranks.py
