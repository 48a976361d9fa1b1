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

# Each library that a file needs is in the bundle, but for those of libc and of CUDA.
needed=$(readelf -d "$work"/bundle/bin/* "$work"/bundle/lib/* 2> /dev/null | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | sort -u |
  grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so|^lib(cublas|cublasLt|cudnn|nccl|cuda)')
for name in $needed; do
  if [[ ! -e $work/bundle/lib/$name ]]; then
    echo "the bundle lacks $name"
    exit 1
  fi
done
if [[ -z $needed ]]; then exit 1; fi
# PyTorch, where it is, computes on the CPU, and uses no GPU of this machine.
export LOGS=$work/logs STRATA_FAKE_CUDA="pageable=1 devices=2" TORCH_DEVICE=cpu WRITER="--hidden 64 --layers 2 --heads 4 --kv-heads 2"
unset STRATA_PLUGIN_PATH
export CUDA_VISIBLE_DEVICES=
status=0
bash "$work/bundle/run.sh" doctor train torch ranks generate store ops > "$work/said" 2>&1 || status=$?
cat "$work/said"
for part in doctor train ranks generate; do grep -qE "^$part +PASS" "$work/said"; done
grep -qE "^torch +(PASS|SKIP)" "$work/said"
for part in store ops; do grep -qE "^$part +SKIP" "$work/said"; done
((status == 0))
