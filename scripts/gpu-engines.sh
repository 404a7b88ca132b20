#!/usr/bin/env bash
# Whole engines on a GPU, with and without Pando: tests/engines/gpu_sglang.py and gpu_vllm.py.
#   scripts/gpu-engines.sh                          both engines, every row
#   scripts/gpu-engines.sh sglang|vllm [ROW ...]    one of them; those files say what a row is
# Takes an engine and Pando from the Python that runs it, where both are installed; else what
# scripts/gpu-bundle.sh packed into build/gpu: unpacks it, and builds Pando's module with this
# machine's compilers. Results go to build/release/bench-engines.json.
set -euo pipefail
cd "$(dirname "$0")/.."
results=build/release/bench-engines.json
home=${PANDO_GPU_HOME:-$HOME/pando-gpu}
lib=$home/usr/lib/x86_64-linux-gnu

if [ $# = 0 ]; then
  status=0
  for engine in sglang vllm; do "$0" $engine || status=1; done
  exit $status
fi
engine=$1
shift

# Pando's Python module, from this checkout.
build_pando() {
  [ -d "$home/usr" ] || tar xJf build/gpu/libraries.tar.xz -C "$home"
  cmake -S . -B "$home/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPANDO_BUILD_TESTS=OFF -DPANDO_BUILD_TOOLS=OFF \
    -DPANDO_BUILD_BENCH=OFF -DPANDO_BUILD_EXAMPLES=OFF -DPANDO_PYTHON=ON -DPANDO_MPI=OFF \
    -DPython_EXECUTABLE="$(command -v python3)" -DCMAKE_PREFIX_PATH="$home/usr;$lib/cmake" -DOPENSSL_ROOT_DIR="$home/usr" \
    -DOPENSSL_CRYPTO_LIBRARY="$lib/libcrypto.a" -DOPENSSL_INCLUDE_DIR="$home/usr/include" \
    -DCMAKE_SHARED_LINKER_FLAGS="-L$lib" -DCMAKE_MODULE_LINKER_FLAGS="-L$lib" -DCMAKE_CUDA_ARCHITECTURES=native \
    > "$home/cmake.log" 2>&1 || { tail -20 "$home/cmake.log"; exit 1; }
  ninja -C "$home/build" pando_core > "$home/ninja.log" 2>&1 || { grep -E "error|FAILED" "$home/ninja.log"; exit 1; }
}

# So that the engines find the plug-in as they would find an installed one.
write_metadata() {
  local folder=$home/metadata/pando-0.dist-info
  mkdir -p "$folder"
  printf 'Metadata-Version: 2.1\nName: pando\nVersion: 0\n' > "$folder/METADATA"
  printf '[%s]\npando = %s\n' sglang.srt.plugins pando.sglang:register vllm.general_plugins pando.vllm:register \
    > "$folder/entry_points.txt"
}

if ! python3 -c "import $engine, pando" 2>/dev/null; then
  [ -f "build/gpu/$engine.tar.xz" ] || {
    echo "gpu-engines: neither installed packages nor build/gpu/$engine.tar.xz: pip install $engine and Pando's wheel," \
      "or run scripts/gpu-bundle.sh where there is a package index" >&2
    exit 1
  }
  [ -d "$home/$engine" ] || { mkdir -p "$home/$engine" && tar xJf "build/gpu/$engine.tar.xz" -C "$home/$engine"; }
  export CPATH=$home/usr/include:$home/usr/include/x86_64-linux-gnu
  export LD_LIBRARY_PATH=$lib:${LD_LIBRARY_PATH:-}
  export PYTHONPATH=$home/$engine:$home/build/python:$home/metadata
  [ "$engine" != sglang ] || export PYTHONPATH=$PYTHONPATH:$PWD/tests/engines/gpu_stubs SGLANG_IS_FLASHINFER_AVAILABLE=false
  build_pando
  write_metadata
fi
export TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore
python3 "tests/engines/gpu_$engine.py" "$results" "$@"
