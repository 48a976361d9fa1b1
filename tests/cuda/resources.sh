#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares what the kernels of the CUDA device take on each architecture with resources.txt: registers of a thread, bytes
# of shared memory of a block that are declared, and bytes of a thread's stack, for spilled registers and for arrays that
# are not in registers.
#
#   resources.sh [compare|update]
#
# Needs nvcc of the version in the table, of the machine or of cmake/cuda_wheels.sh, but no GPU; takes two minutes of one
# core. Exits with 77 without such an nvcc.
set -euo pipefail
cd "$(dirname "$0")/../.."

what=${1:-compare}
if [[ $what != compare && $what != update ]]; then
  echo "usage: resources.sh [compare|update]" >&2
  exit 2
fi
table=tests/cuda/resources.txt
architectures="80;89;90;100"

if ! command -v "${CUDACXX:-nvcc}" > /dev/null && [[ -x build/cuda/bin/nvcc ]]; then
  export PATH=$PWD/build/cuda/bin:$PATH  # of cmake/cuda_wheels.sh
fi
if ! command -v "${CUDACXX:-nvcc}" > /dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  echo "there is no nvcc: resources of CUDA kernels are not compared"
  exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cmake -S . -B "$out" -G Ninja -DSTRATA_CUDA=ON -DSTRATA_CUDA_ARCHITECTURES="$architectures" -DSTRATA_BENCHMARKS=OFF \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_FLAGS=-Xptxas=-v > "$out/configure" || { cat "$out/configure"; exit 1; }
version=$(sed -nE 's/.*CUDA plugin: toolkit ([0-9]+\.[0-9]+).*/\1/p' "$out/configure")
if [[ $what == compare ]] && ! grep -q "^# nvcc $version\$" "$table"; then
  echo "resources.txt is of $(sed -n 's/^# //p' "$table"), and this is nvcc $version: not compared"
  exit 77
fi
cmake --build "$out" -j "$(nproc)" --target strata_cuda_ops > "$out/build" 2>&1 || { cat "$out/build"; exit 1; }

# Lines of ptxas become: kernel|architecture|registers|shared bytes|stack bytes. Then one line for each kernel.
c++filt < "$out/build" | awk '
  /Compiling entry function/ {
    split($0, quoted, "\x27")
    name = quoted[2]
    architecture = quoted[4]
    gsub(/strata::kernels::(cuda::)?/, "", name)
    gsub(/^void /, "", name)
    gsub(/\([A-Za-z0-9_:]+\)/, "", name)  # casts of template arguments
    sub(/\(.*$/, "", name)
  }
  /bytes stack frame/ { match($0, /[0-9]+ bytes stack frame/); stack = substr($0, RSTART) + 0 }
  /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5) + 0
    shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
    sub(/^sm_/, "", architecture)
    print name "|" architecture "|" registers "|" shared "|" stack
  }' | sort -u > "$out/lines"
awk -F'|' -v version="$version" -v list="$architectures" '
  ($1, $2) in cell { print "two kernels are called " $1 > "/dev/stderr"; failed = 1 }
  { names[$1]; cell[$1, $2] = $3 " " $4 " " $5 }
  END {
    if (failed) exit 1
    print "# nvcc " version
    print "# architecture: registers of a thread, bytes of shared memory of a block, bytes of the stack of a thread (resources.sh)"
    count = split(list, architecture, ";")
    for (name in names) {
      line = name
      for (i = 1; i <= count; ++i) line = line "|" architecture[i] ": " cell[name, architecture[i]]
      print line | "LC_ALL=C sort"
    }
  }' "$out/lines" > "$out/table"
if (($(wc -l < "$out/lines") == 0)); then
  echo "the compiler says nothing of what kernels take: is -Xptxas=-v still there?" >&2
  exit 1
fi

if [[ $what == update ]]; then
  cp "$out/table" "$table"
elif ! diff "$table" "$out/table"; then
  echo "The kernels take other resources than $table says: update it with tests/cuda/resources.sh update, and say why" >&2
  exit 1
fi
