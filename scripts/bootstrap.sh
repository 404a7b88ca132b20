#!/usr/bin/env bash
# Installs the system packages that are missing, and says which. Debian 12, as root.
#   scripts/bootstrap.sh [build] [lint] [fuzz]     (default: build)
set -euo pipefail

declare -A groups=(
  [build]="g++ cmake ninja-build ccache git python3 python3-dev python3-venv libfmt-dev libssl-dev libxxhash-dev libcli11-dev
           libgtest-dev librapidcheck-dev libbenchmark-dev
           nlohmann-json3-dev libtomlplusplus-dev libyaml-cpp-dev libopenmpi-dev openmpi-bin
           libhiredis-dev redis-server redis-tools liburing-dev fio libsimdjson-dev zlib1g-dev libzstd-dev
           chromium chromium-driver python3-selenium
           prometheus-cpp-dev libzmq3-dev libmsgpack-cxx-dev python3-zmq python3-msgpack"
  [lint]="clang-format clang-tidy git"
  [fuzz]="clang libclang-rt-14-dev"
)

wanted=()
for group in "${@:-build}"; do
  [ -n "${groups[$group]:-}" ] || { echo "bootstrap: unknown group '$group': expected ${!groups[*]}" >&2; exit 2; }
  read -r -d '' -a packages <<<"${groups[$group]}" || true
  wanted+=("${packages[@]}")
done

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "bootstrap: installing ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
  echo "bootstrap: not root; run: apt-get install ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
