#!/usr/bin/env bash
# Installs build/release to a scratch folder and builds tests/consumer against it with nothing but
# find_package(pando), then runs it: the package is complete.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$top/build/release" --prefix "$scratch/prefix" >/dev/null
cmake -S "$top/tests/consumer" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/consumer"
"$scratch/prefix/bin/pando" --version
echo "install and consume: ok"
