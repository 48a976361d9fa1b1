#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy with the checks of .clang-tidy, and prints what it finds.
#
#   clang_tidy.sh [changed|all]
#
# changed (the default): the .cpp files that differ from the branch main, uncommitted ones included; a changed
# header stands for the .cpp of its name. all: the whole tree, many files compiled as one.
set -euo pipefail
cd "$(dirname "$0")/../.."

which=${1:-changed}
if [[ $which != changed && $which != all ]]; then
  echo "usage: clang_tidy.sh [changed|all]" >&2
  exit 2
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
unity=$([[ $which == all ]] && echo ON || echo OFF)
cmake -S . -B "$out" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_UNITY_BUILD="$unity" \
  -DCMAKE_UNITY_BUILD_BATCH_SIZE=12 > "$out/configure" || { cat "$out/configure"; exit 1; }
sed -i 's/ -Wno-restrict / /' "$out/compile_commands.json"  # GCC's own

files=$(grep -oP '"file": "\K[^"]+' "$out/compile_commands.json" | sort -u)
if [[ $which == changed ]]; then
  base=$(git merge-base HEAD main 2> /dev/null || git rev-parse HEAD)
  files=$({ git diff --name-only "$base" && git ls-files -o --exclude-standard; } |
    sed -E "s/\.h$/.cpp/; s|^|$PWD/|" | sort -u | grep -xF "$files" || true)
fi
failed=0
xargs -r -P "$(nproc)" -n 1 clang-tidy -p "$out" --config-file=.clang-tidy --quiet <<< "$files" \
  > "$out/found" 2> "$out/errors" || failed=1
sort -u "$out/found" | grep -E '(warning|error):' || true
if ((failed)) && [[ ! -s $out/found ]]; then cat "$out/errors"; fi
exit "$failed"
