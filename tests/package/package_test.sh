#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The installed package is all that a program needs: the examples, copied out of the tree, are configured with
# find_package(strata), built and run, and the loss of each falls.
#
#   package_test.sh ROOT BUILD COMPILER
set -euo pipefail
root=$1
build=$2
compiler=$3
work=$(mktemp -d "$build/package-test.XXXXXX")
outside=$(mktemp -d)
trap 'rm -rf "$work" "$outside"' EXIT

cmake --install "$build" --prefix "$work/installed" > /dev/null
cp "$root"/examples/{CMakeLists.txt,train_text.cpp,external_mlp.cpp} "$outside"
for each in train_text:60 external_mlp:120; do
  lines=$(wc -l < "$outside/${each%:*}.cpp")
  if ((lines > ${each#*:})); then
    echo "examples/${each%:*}.cpp: $lines lines, at most ${each#*:}"
    exit 1
  fi
done
cmake -S "$outside" -B "$outside/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/installed" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" > /dev/null
cmake --build "$outside/build"

# Both end with 0 only where the loss has fallen.
mkdir "$work/scratch"
"$work/installed/bin/strata" init --data "$root/tests/data/cli/harbour.txt" --out "$work/model" --vocab-size 300 \
  --hidden 64 --layers 2 --heads 4
"$outside/build/train_text" "$work/model" "$root/tests/data/cli/harbour.txt" "$work/run" "$work/scratch"
[[ -f $work/run/model/model.safetensors ]]
"$outside/build/external_mlp" "$work/scratch"
