#!/usr/bin/env bash
# For a GPU machine that has torch 2.11 (CUDA 13), Triton, Python 3.12, nvcc, cmake, ninja and nanobind's
# needs, but no package index. Here, where there is one:
#   scripts/gpu-bundle.sh       packs build/gpu: SGLang 0.5.16 and what it imports (about 40 MB), and the
#                               libraries that Pando links with (about 4 MB)
# There, with build/gpu beside the checkout: make gpu-engines.
# Left out for size, and not needed with Triton attention: FlashAttention's and FlashMLA's binaries, and
# FlashInfer (tests/engines/gpu_stubs stands in for it).
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p $out "$work/engine" "$work/kernel"

pip() { python3 -m pip --disable-pip-version-check "$@" --quiet --no-deps --only-binary=:all: --python-version 3.12; }
pip install --target "$work/engine" sglang==0.5.16 torch_memory_saver torchao==0.17.0 transformers==5.12.1 \
  tokenizers==0.22.2 huggingface_hub==1.33.0 annotated-doc annotated-types anyio apache-tvm-ffi==0.1.11 blobfile==3.0.0 \
  click cloudpickle compressed-tensors dill diskcache distro docstring-parser easydict fastapi gguf h11 httpcore httpx \
  importlib_metadata interegular jiter jsonschema jsonschema-specifications lark llguidance loguru msgspec nest-asyncio \
  openai==2.6.1 openai-harmony==0.0.4 opentelemetry-api orjson outlines==0.1.11 outlines_core==0.1.26 partial-json-parser \
  pybase64 pydantic python-multipart pyzmq referencing rpds-py setproctitle smg-grpc-servicer sniffio starlette \
  typing-inspection uvicorn watchfiles xgrammar==0.2.1 nanobind
core=$(sed -n 's/^Requires-Dist: pydantic-core==//p' "$work"/engine/pydantic-[0-9]*.dist-info/METADATA)
pip install --target "$work/engine" "pydantic-core==$core"
pip download --dest "$work/kernel" sglang-kernel==0.4.5
unzip -q -o "$work"/kernel/*.whl -d "$work/engine" \
  -x 'sgl_kernel/flash_ops*' 'sgl_kernel/flashmla_ops*' 'sgl_kernel/infllm_ops*' 'sgl_kernel/sm100/*'
rm -rf "$work"/engine/{bin,sglang/multimodal_gen,xgrammar/include,xgrammar/lib} "$work"/engine/torchao/*.so
strip --strip-debug "$work"/engine/xgrammar/*.so
find "$work/engine" -name __pycache__ -prune -exec rm -rf {} +
tar c -C "$work/engine" . | xz -4 -T0 > $out/engine.tar.xz

# Pando's own libraries, as this machine's packages have them.
usr=$work/libraries/usr lib=usr/lib/x86_64-linux-gnu
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
tar cJf $out/libraries.tar.xz -C "$work/libraries" usr
ls -la $out
