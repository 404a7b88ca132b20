#!/usr/bin/env bash
# Whole engines on a GPU, with and without Pando: tests/engines/gpu_sglang.py.
#   scripts/gpu-engines.sh [MODE,PAGE,LAYOUT ...]
# Takes SGLang and Pando from the Python that runs it, where both are installed; else what
# scripts/gpu-bundle.sh packed into build/gpu: unpacks it, and builds Pando's module with this
# machine's compilers. Results go to build/release/bench-engines.json.
set -euo pipefail
cd "$(dirname "$0")/.."
results=build/release/bench-engines.json

if ! python3 -c 'import sglang, pando' 2>/dev/null; then
  [ -f build/gpu/engine.tar.xz ] || {
    echo "gpu-engines: neither installed packages nor build/gpu: pip install sglang and Pando's wheel, or" \
      "run scripts/gpu-bundle.sh where there is a package index" >&2
    exit 1
  }
  home=${PANDO_GPU_HOME:-$HOME/pando-gpu}
  mkdir -p "$home"
  [ -d "$home/engine" ] || { mkdir "$home/engine" && tar xJf build/gpu/engine.tar.xz -C "$home/engine"; }
  [ -d "$home/usr" ] || tar xJf build/gpu/libraries.tar.xz -C "$home"
  lib=$home/usr/lib/x86_64-linux-gnu
  export CPATH=$home/usr/include:$home/usr/include/x86_64-linux-gnu
  export LD_LIBRARY_PATH=$lib:${LD_LIBRARY_PATH:-}
  export PYTHONPATH=$home/engine:$home/build/python:$home/metadata:$PWD/tests/engines/gpu_stubs
  cmake -S . -B "$home/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPANDO_BUILD_TESTS=OFF -DPANDO_BUILD_TOOLS=OFF \
    -DPANDO_BUILD_BENCH=OFF -DPANDO_BUILD_EXAMPLES=OFF -DPANDO_PYTHON=ON -DPANDO_MPI=OFF \
    -DPython_EXECUTABLE="$(command -v python3)" -DCMAKE_PREFIX_PATH="$home/usr;$lib/cmake" -DOPENSSL_ROOT_DIR="$home/usr" \
    -DOPENSSL_CRYPTO_LIBRARY="$lib/libcrypto.a" -DOPENSSL_INCLUDE_DIR="$home/usr/include" \
    -DCMAKE_SHARED_LINKER_FLAGS="-L$lib" -DCMAKE_MODULE_LINKER_FLAGS="-L$lib" -DCMAKE_CUDA_ARCHITECTURES=native \
    > "$home/cmake.log" 2>&1 || { tail -20 "$home/cmake.log"; exit 1; }
  ninja -C "$home/build" pando_core > "$home/ninja.log" 2>&1 || { grep -E "error|FAILED" "$home/ninja.log"; exit 1; }
  # So that SGLang finds the plug-in as it would find an installed one.
  mkdir -p "$home/metadata/pando-0.dist-info"
  printf 'Metadata-Version: 2.1\nName: pando\nVersion: 0\n' > "$home/metadata/pando-0.dist-info/METADATA"
  printf '[sglang.srt.plugins]\npando = pando.sglang:register\n' > "$home/metadata/pando-0.dist-info/entry_points.txt"
  export SGLANG_IS_FLASHINFER_AVAILABLE=false
fi
export TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore
python3 tests/engines/gpu_sglang.py "$results" "$@"
