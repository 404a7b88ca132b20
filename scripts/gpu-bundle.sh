#!/usr/bin/env bash
# For a GPU machine that has torch 2.11 (CUDA 13), Triton, transformers, Python 3.12, nvcc, cmake and ninja,
# but no package index. Here, where there is one:
#   scripts/gpu-bundle.sh [sglang] [vllm]    packs build/gpu: the engines named, or both, with what they
#                                            import, and the libraries that Pando links with (3 MB)
# There, with build/gpu beside the checkout: make gpu-engines, or scripts/gpu-engines.sh ENGINE.
# With Triton attention an engine needs little of its machine code; see below what is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

pip() { python3 -m pip --disable-pip-version-check "$@" --quiet --no-deps --only-binary=:all: --python-version 3.12; }

# finish ENGINE: what every engine needs beside its own list; packs it.
finish() {
  local folder=$work/$1 core
  core=$(sed -n 's/^Requires-Dist: pydantic-core==//p' "$folder"/pydantic-[0-9]*.dist-info/METADATA)
  pip install --target "$folder" "pydantic-core==$core" nanobind
  rm -rf "${folder:?}"/{bin,xgrammar/include,xgrammar/lib}
  strip --strip-debug "$folder"/xgrammar/*.so
  find "$folder" -name __pycache__ -prune -exec rm -rf {} +
  tar c -C "$folder" . | xz -6 -T0 > "$out/$1.tar.xz"
}

# SGLang 0.5.16 without the binaries of FlashAttention and FlashMLA, and without FlashInfer
# (tests/engines/gpu_stubs stands in for it).
bundle_sglang() {
  local folder=$work/sglang
  pip install --target "$folder" sglang==0.5.16 torch_memory_saver torchao==0.17.0 transformers==5.12.1 \
    tokenizers==0.22.2 huggingface_hub==1.33.0 annotated-doc annotated-types anyio apache-tvm-ffi==0.1.11 \
    blobfile==3.0.0 click cloudpickle compressed-tensors dill diskcache distro docstring-parser easydict fastapi gguf \
    h11 httpcore httpx importlib_metadata interegular jiter jsonschema jsonschema-specifications lark llguidance \
    loguru msgspec nest-asyncio openai==2.6.1 openai-harmony==0.0.4 opentelemetry-api orjson outlines==0.1.11 \
    outlines_core==0.1.26 partial-json-parser pybase64 pydantic python-multipart pyzmq referencing rpds-py \
    setproctitle smg-grpc-servicer sniffio starlette typing-inspection uvicorn watchfiles xgrammar==0.2.1
  pip download --dest "$work/wheels" sglang-kernel==0.4.5
  unzip -q -o "$work"/wheels/sglang_kernel*.whl -d "$folder" \
    -x 'sgl_kernel/flash_ops*' 'sgl_kernel/flashmla_ops*' 'sgl_kernel/infllm_ops*' 'sgl_kernel/sm100/*'
  rm -rf "$folder"/sglang/multimodal_gen "$folder"/torchao/*.so
  finish sglang
}

# vLLM 0.32.0. It asks for torch 2.13, but its extension is built for torch's stable ABI and needs no
# symbol that 2.11 lacks, and its Python code still has its branches for 2.11. Of the extension the code
# for Hopper is kept; other extensions (attention, experts) and the server in Rust are left out. vLLM wants
# to import FlashAttention even where nothing calls it.
bundle_vllm() {
  local folder=$work/vllm
  pip download --dest "$work/wheels" --platform manylinux_2_28_x86_64 vllm==0.32.0
  unzip -q -o "$work"/wheels/vllm-*.whl -d "$folder" \
    -x 'vllm/vllm-rs' 'vllm/vllm_flash_attn/*.so' 'vllm/third_party/deep_gemm/*' 'vllm/third_party/fmha_sm100/*' \
    'vllm/third_party/tml_fa4/*' 'vllm/_moe_C*' 'vllm/_qutlass*' 'vllm/_flashmla*' 'vllm/_flashkda*' 'vllm/_deepselect*'
  scripts/thin-fatbin.py 90 "$folder/vllm/_C_stable_libtorch.abi3.so"
  echo '"""Stands in for FlashAttention."""' > "$folder/vllm/vllm_flash_attn/_vllm_fa2_C.py"
  pip install --target "$folder" aiohappyeyeballs aiohttp aiosignal annotated-doc annotated-types anyio \
    apache-tvm-ffi==0.1.11 astor attrs blake3 cachetools cbor2 click cloudpickle compressed-tensors==0.17.0 depyf==0.20.0 \
    dill distro einops 'fastapi<0.137.0' frozenlist gguf h11 httpcore httpx httpx2 ijson jiter jsonschema \
    jsonschema-specifications lark==1.2.2 'llguidance<1.8.0' loguru msgspec multidict nvtx==0.2.15 openai==2.54.0 \
    oss-harmony partial-json-parser prometheus_client propcache protobuf psutil py-cpuinfo pybase64 pydantic \
    python-json-logger pyzmq referencing rpds-py setproctitle six sniffio starlette typing-inspection uvicorn uvloop \
    watchfiles xgrammar==0.2.8 yarl
  finish vllm
}

# Pando's own libraries, as this machine's packages have them.
bundle_libraries() {
  local usr=$work/libraries/usr lib=usr/lib/x86_64-linux-gnu header name
  mkdir -p "$usr/include/x86_64-linux-gnu" "$work/libraries/$lib/cmake"
  for header in fmt openssl nlohmann toml++ yaml-cpp hiredis liburing liburing.h xxhash.h simdjson.h zlib.h zconf.h \
    zstd.h zstd_errors.h zdict.h; do
    [ ! -e "/usr/include/$header" ] || cp -r "/usr/include/$header" "$usr/include/"
  done
  cp -r /usr/include/x86_64-linux-gnu/openssl "$usr/include/x86_64-linux-gnu/"
  cp /usr/include/x86_64-linux-gnu/zconf.h "$usr/include/" 2>/dev/null || true
  for name in libcrypto.a libz.a libzstd.a; do cp -L "/$lib/$name" "$work/libraries/$lib/"; done
  for name in yaml-cpp hiredis uring simdjson fmt; do cp -P "/$lib/lib$name".so* "$work/libraries/$lib/"; done
  cp -r "/$lib/cmake/fmt" "/$lib/cmake/simdjson" "$work/libraries/$lib/cmake/"
  tar cJf "$out/libraries.tar.xz" -C "$work/libraries" usr
}

[ $# -gt 0 ] || set -- sglang vllm
for engine; do "bundle_$engine"; done
bundle_libraries
ls -la "$out"
