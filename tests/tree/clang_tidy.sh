#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy with the checks of .clang-tidy over host files, by the compile commands of a build.
#
#   clang_tidy.sh [all|changed] [SECONDS]
#
# changed (the default): the files that differ from the branch main, uncommitted ones too; for a header the
# .cpp of its name. After SECONDS no further file is begun, and the last line says how many were left out.
# BUILD=DIR names the build, by default build/. Exit code 77: clang-tidy or the build is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

which=${1:-changed}
seconds=${2:-0}
build=${BUILD:-build}
tool=${CLANG_TIDY:-clang-tidy}
if ! command -v "$tool" > /dev/null; then
  echo "clang-tidy is not installed" >&2
  exit 77
fi
if [[ ! -f $build/compile_commands.json ]]; then
  echo "$build/compile_commands.json is missing (cmake --preset cpu makes it)" >&2
  exit 77
fi

compiled=$(grep -oP '"file": "\K[^"]+' "$build/compile_commands.json" | sed "s|^$PWD/||" | sort -u)
case $which in
  all) files=$compiled ;;
  changed)
    base=$(git merge-base HEAD main 2> /dev/null || git rev-parse HEAD)
    files=$({ git diff --name-only "$base" && git ls-files -o --exclude-standard; } |
      sed -E 's/\.h$/.cpp/' | sort -u | grep -xF "$compiled" || true)
    ;;
  *)
    echo "usage: clang_tidy.sh [all|changed] [SECONDS]" >&2
    exit 2
    ;;
esac
if [[ -z $files ]]; then exit 0; fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sed 's/ -Wno-restrict / /' "$build/compile_commands.json" > "$out/compile_commands.json"  # GCC's own
export tool out seconds
check() {
  if ((seconds > 0 && SECONDS_SINCE_START > seconds)); then
    echo "$1" >> "$out/left"
    return 0
  fi
  "$tool" -p "$out" --quiet "$1" > "$out/log_${1//\//_}" 2> /dev/null
}
export -f check
begin=$(date +%s)
export begin
failed=0
xargs -P "$(nproc)" -I{} bash -c \
  'SECONDS_SINCE_START=$(($(date +%s) - begin)); check {}' <<< "$files" || failed=1
cat "$out"/log_* 2> /dev/null | grep -E '(warning|error):' | sort -u || true
if [[ -f $out/left ]]; then echo "left out for time: $(wc -l < "$out/left") of $(wc -l <<< "$files") files"; fi
exit "$failed"
