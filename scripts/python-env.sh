#!/usr/bin/env bash
# Makes build/venv, with what the Python package is built and tested with (python/requirements.txt).
# Packages come from PyPI: where that cannot be reached this says so and succeeds, and the build
# goes on without the Python package.
#   PYTHON=python3.12 scripts/python-env.sh      (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
wanted=python/requirements.txt
[ -f "$venv/installed.txt" ] && cmp -s "$wanted" "$venv/installed.txt" && exit 0

skip() { echo "python: skipped, $1; the rest is built and tested without it" >&2; rm -rf "$venv"; exit 0; }
mkdir -p build
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv" || skip "no virtual environment can be made"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 -r "$wanted" ||
  skip "PyPI cannot be reached or lacks what $wanted names"
cp "$wanted" "$venv/installed.txt"
