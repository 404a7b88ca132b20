#!/usr/bin/env bash
# Installs the newest wheel of build/wheels with NumPy alone, away from the sources, and runs what
# must work there: the tests that need nothing else, and an example.
#   PYTHON=python3.12 scripts/test-wheel.sh      (default: the Python of build/venv)
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -d build/venv ]; then
  echo "wheel: skipped, there is no build/venv (scripts/python-env.sh says why)"
  exit 0
fi
wheel=$(ls -t build/wheels/pando-*.whl | head -1)
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"${PYTHON:-build/venv/bin/python}" -m venv "$venv/env"
"$venv/env/bin/pip" install --quiet --disable-pip-version-check "$wheel" pytest hypothesis
sources=$PWD
cd "$venv"
env -u PYTHONPATH "$venv/env/bin/python" -m pytest -q -p no:cacheprovider \
  "$sources/python/tests/test_cache.py" "$sources/python/tests/test_lifetimes.py" \
  "$sources/python/tests/test_threads.py"
env -u PYTHONPATH "$venv/env/bin/python" "$sources/examples/engine_loop.py" >/dev/null
echo "wheel: $(basename "$wheel") works with $("$venv/env/bin/python" --version)"
