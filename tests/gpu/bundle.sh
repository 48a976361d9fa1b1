#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what tests/gpu/run.sh needs on a machine with a GPU and without packages of Debian: the programs as they are
# built here, the shared libraries that they use except for those of CUDA and of libc, and small models.
#
#   bundle.sh [BUILD [FILE]]     default: build, bundle.tar.xz; at most 60 MB. XZ_LEVEL: 6
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
file=${2:-$root/bundle.tar.xz}
limit_bytes=60000000
programs=(bindings/cli/strata bindings/cli/libstrata_cuda.so bindings/c/libstrata.so tests/kernels/kernels_tests)
models=(gqa_untied tinyllama_bf16 gpt2 qwen3 gemma2 window)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/bundle/bin" "$work/bundle/lib" "$work/bundle/tests/data/model" "$work/bundle/tests/data/cli"
for program in "${programs[@]}"; do
  if [[ ! -e $build/$program ]]; then
    echo "bundle.sh: $build/$program is missing (build it: cmake --build $build)" >&2
    exit 1
  fi
  cp "$build/$program" "$work/bundle/bin/"
done
# libc and its parts come from the machine; CUDA's libraries fit its driver.
ldd "$work"/bundle/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so|/lib(cublas|cublasLt|cudnn|nccl|cuda)[^/]*\.so' |
  xargs -I{} cp -L {} "$work/bundle/lib/"
for model in "${models[@]}"; do cp -r "$root/tests/data/model/$model" "$work/bundle/tests/data/model/"; done
cp "$root/tests/data/cli/harbour.txt" "$work/bundle/tests/data/cli/"
cp "$root/tests/gpu/run.sh" "$root"/tests/gpu/{store,losses_torch}.py "$root/benchmarks/gpu_ops_torch.py" "$work/bundle/"
mkdir "$work/bundle/python"
cp -r "$root/bindings/python/strata" "$work/bundle/python/"
tar -C "$work" -cf - bundle | xz -T0 -"${XZ_LEVEL:-6}" > "$file"
bytes=$(stat -c %s "$file")
echo "$file: $bytes bytes"
if ((bytes > limit_bytes)); then
  echo "bundle.sh: more than $limit_bytes bytes (leave a model or a program out)" >&2
  exit 1
fi
