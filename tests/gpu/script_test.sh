#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The bundle has what its script needs, and the script's parts that a slow device allows pass over the fake one; a GPU is
# there for minutes, too few to find mistakes of a script.
#
#   script_test.sh BUILD PLUGIN      PLUGIN: libstrata_cuda.so over the fake device
set -euo pipefail

build=$1 plugin=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A build folder with that plugin.
for file in bindings/cli/strata bindings/c/libstrata.so tests/kernels/kernels_tests; do
  mkdir -p "$work/build/$(dirname "$file")"
  ln -s "$build/$file" "$work/build/$file"
done
ln -s "$plugin" "$work/build/bindings/cli/libstrata_cuda.so"
XZ_LEVEL=0 bash "$here/bundle.sh" "$work/build" "$work/bundle.tar.xz"
tar -C "$work" -xf "$work/bundle.tar.xz"

if ldd "$work"/bundle/bin/* | LD_LIBRARY_PATH=$work/bundle/lib grep "not found"; then
  echo "the bundle lacks libraries"
  exit 1
fi
# PyTorch, where it is, computes on the CPU.
export LOGS=$work/logs STRATA_FAKE_CUDA="pageable=1 devices=2" TORCH_DEVICE=cpu WRITER="--hidden 64 --layers 2 --heads 4 --kv-heads 2"
unset STRATA_PLUGIN_PATH
status=0
bash "$work/bundle/run.sh" doctor train torch ranks generate store > "$work/said" 2>&1 || status=$?
cat "$work/said"
for part in doctor train ranks generate; do grep -qE "^$part +PASS" "$work/said"; done
grep -qE "^torch +(PASS|SKIP)" "$work/said"
grep -qE "^store +SKIP" "$work/said"
((status == 0))
