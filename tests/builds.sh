#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the whole tree with another compiler or another build type than tests/run.sh does, with warnings as errors.
#
#   tests/builds.sh [COMPILER-TYPE]...
#
# COMPILER is g++ or clang++, TYPE a CMAKE_BUILD_TYPE. Without arguments: all that users may take.
set -euo pipefail
cd "$(dirname "$0")/.."

bash tests/install_packages.sh
bash tests/install_packages.sh <(echo clang)
if (($# == 0)); then
  set -- g++-Release g++-Debug clang++-RelWithDebInfo clang++-Release clang++-Debug
fi
log=$(mktemp)
folder=build-other
trap 'rm -rf "$log" "$folder"' EXIT
for build; do
  rm -rf "$folder"
  began=$SECONDS
  if cmake -G Ninja -S . -B "$folder" -DCMAKE_CXX_COMPILER="${build%-*}" -DCMAKE_BUILD_TYPE="${build##*-}" \
    -DSTRATA_WERROR=ON -DSTRATA_CUDA=OFF -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12 > "$log" 2>&1 &&
    cmake --build "$folder" -j "${JOBS:-$(nproc)}" >> "$log" 2>&1; then
    echo "$build: built without warnings in $((SECONDS - began)) s"
  else
    cat "$log"
    echo "$build: does not build"
    exit 1
  fi
done
