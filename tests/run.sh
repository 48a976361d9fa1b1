#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and tests everything: installs packages, configures, builds, checks the rules of the tree, runs all
# tests, then the sanitizer builds. Ends with one line in ctest's words that sums all of it up.
#
#   tests/run.sh           everything; 20 to 30 minutes on 2 cores, 10 more for a first build
#   tests/run.sh --fast    the build and its fast tests; about 3 minutes when the compiler cache is warm
#
# Build folders are build/, build-asan/ and build-tsan/. CCACHE_DIR chooses the compiler cache and JOBS the
# number of parallel jobs.
set -euo pipefail

fast=false
for argument in "$@"; do
  case $argument in
    --fast) fast=true ;;
    *)
      echo "usage: tests/run.sh [--fast]" >&2
      exit 2
      ;;
  esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(nproc)}
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ccache}
export CCACHE_BASEDIR=$root
export CCACHE_NOHASHDIR=true
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$root/tests/tsan.supp second_deadlock_stack=1"
export LSAN_OPTIONS="suppressions=$root/tests/lsan.supp"

started=$SECONDS
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
tests_run=0
tests_failed=0
tests_skipped=0

headline() { echo "== $1 ($((SECONDS - started)) s)"; }

# The thread sanitizer's memory map needs addresses that are not randomised too far.
steady() {
  if setarch "$(uname -m)" -R true 2> /dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

# suite NAME CTEST-ARGUMENTS...: runs ctest and adds its counts to the sum.
suite() {
  local name=$1 log=$logs/log counts
  shift
  headline "$name"
  steady ctest --output-on-failure --timeout 900 -j "$jobs" "$@" > "$log" 2>&1 || true
  grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#[0-9]+: .*   Passed |Test project |$)' "$log" || true
  counts=$(sed -nE 's/.* ([0-9]+) tests? failed out of ([0-9]+)/\1 \2/p' "$log" | tail -n 1)
  if [[ -z $counts ]]; then
    counts="1 1"  # ctest itself failed or found no tests, and the log says why
  fi
  tests_failed=$((tests_failed + ${counts% *}))
  tests_run=$((tests_run + ${counts#* }))
  tests_skipped=$((tests_skipped + $(grep -cE '\*\*\*Skipped' "$log" || true)))
}

# sanitized PRESET WITHOUT FOLDERS...: the fast tests of some folders under a sanitizer; FOLDER:LABEL for others.
# Tests whose name matches WITHOUT are left out.
sanitized() {
  local preset=$1 without=$2 folder label targets=()
  shift 2
  headline "building for $preset"
  cmake --preset "$preset" > "$logs/configure" || { cat "$logs/configure"; exit 1; }
  for folder in "$@"; do
    label=${folder#*:}
    if [[ $label == "$folder" ]]; then label=fast; else folder=${folder%:*}_$label; fi
    targets+=("${folder}_tests:$label")
  done
  steady cmake --build "build-$preset" -j "$jobs" --target "${targets[@]%:*}"
  for folder in "${targets[@]}"; do
    label=${folder#*:}
    folder=${folder%_tests:*}
    suite "$folder under $preset" --test-dir "build-$preset/tests/${folder%_"$label"}" -L "$label" -E "$without"
  done
}

bash tests/install_packages.sh
bash tests/install_packages.sh tests/packages_to_compare.txt ||
  echo "Without these packages the tests that compare with their programs are skipped." >&2

headline "configuring and building"
cmake --preset cpu > "$logs/configure" || { cat "$logs/configure"; exit 1; }
cmake --build build -j "$jobs"

if $fast; then
  suite "fast tests" --test-dir build -L fast
else
  suite "all tests" --test-dir build
  headline "installing into a scratch folder"
  cmake --install build --prefix "$logs/installed" > /dev/null
  "$logs/installed/bin/strata" --help > /dev/null
  sanitized asan none base config io io:fault model plan exec train fuzz
  # What each model family computes is one thread's arithmetic; what all of them share with threads is tested apart.
  sanitized tsan 'TwentyStepsEqualTheReference' io io:fault exec
fi

headline "done"
if ((tests_skipped > 0)); then echo "$tests_skipped tests skipped (their output says why)"; fi
if ((tests_run == 0)); then
  echo "No tests were found!!!"
  exit 1
fi
passed_percent=$((100 * (tests_run - tests_failed) / tests_run))
echo "$passed_percent% tests passed, $tests_failed tests failed out of $tests_run"
((tests_failed == 0))
