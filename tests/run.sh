#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and tests everything: installs packages, configures, builds, checks the rules of the tree, runs all
# tests, then tests under sanitizers. Ends with one line in ctest's words that sums all of it up.
#
#   tests/run.sh           what CI runs
#   tests/run.sh --fast    the build and its fast tests; 3 minutes on two cores where all is built
#   tests/run.sh --long    what CI runs, builds of other types and by clang (tests/builds.sh), clang-tidy over the whole
#                          tree and the table of CUDA kernels, with ten times as many seeds in random tests, five times
#                          as many under sanitizers, and more tests under these
#
# Build folders are build/, build-asan/ and build-tsan/. CCACHE_DIR chooses the compiler cache and JOBS the
# number of parallel jobs.
set -euo pipefail

fast=false
long=false
seeds=1
sanitized_seeds=0.2
for argument in "$@"; do
  case $argument in
    --fast) fast=true ;;
    --long)
      long=true
      seeds=10
      sanitized_seeds=1
      ;;
    *)
      echo "usage: tests/run.sh [--fast | --long]" >&2
      exit 2
      ;;
  esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(nproc)}
# Most tests take two places. There is one more of these pairs than there are cores, because some tests wait, and a place
# for a test of faults, which waits most of the time. Of the shards of --fast each waits now and then.
places=$((2 * jobs + 3))
if $fast; then places=$((2 * jobs + 6)); fi
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ccache}
export CCACHE_BASEDIR=$root
export CCACHE_NOHASHDIR=true
export UBSAN_OPTIONS=print_stacktrace=1
# The longest history: a suppressed library is known by the frames of the older access too.
export TSAN_OPTIONS="suppressions=$root/tests/tsan.supp second_deadlock_stack=1 history_size=7"
export LSAN_OPTIONS="suppressions=$root/tests/lsan.supp"
export STRATA_SEEDS=$seeds

started=$SECONDS
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
tests_run=0
tests_failed=0
tests_skipped=0

# headline WHAT: what begins now. The times of what has ended are printed at the end.
began=$SECONDS
part=packages
times=
headline() {
  times+="${times:+, }$part $((SECONDS - began)) s"
  began=$SECONDS
  part=$1
  echo "== $1 ($((SECONDS - started)) s)"
}

# The thread sanitizer's memory map needs addresses that are not randomised too far.
steady() {
  if setarch "$(uname -m)" -R true 2> /dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

# said_by_failed LOG: the names of the tests that failed, and the last lines that each of them printed.
said_by_failed() {
  awk -v most=25 '
    function show() { for (i = (n > most ? n - most : 0); failed && i < n; ++i) print "  " said[i % most] }
    / Test +#[0-9]+: / { show(); n = 0; failed = /\*\*\*/ && !/\*\*\*Skipped/; if (failed) print; next }
    /^ +Start +[0-9]+: / || /tests? passed, / { show(); n = 0; failed = 0 }
    { said[n++ % most] = $0 }' "$1"
}

# suite NAME CTEST-ARGUMENTS...: runs ctest and adds its counts to the sum.
suite() {
  local name=$1 log=$logs/log counts
  shift
  headline "$name"
  steady ctest --output-on-failure --timeout 900 -j "$places" "$@" > "$log" 2>&1 || true
  grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#[0-9]+: .*   Passed |Test project |$)' "$log" || true
  counts=$(sed -nE 's/.* ([0-9]+) tests? failed out of ([0-9]+)/\1 \2/p' "$log" | tail -n 1)
  if [[ -z $counts ]]; then
    counts="1 1"  # ctest itself failed or found no tests, and the log says why
  fi
  tests_failed=$((tests_failed + ${counts% *}))
  if ((${counts% *} > 0)); then said_by_failed "$log" >> "$logs/failed"; fi
  tests_run=$((tests_run + ${counts#* }))
  tests_skipped=$((tests_skipped + $(grep -cE '\*\*\*Skipped' "$log" || true)))
}

# build FOLDER TARGETS...: what the compiler prints is shown where it fails.
build() {
  local folder=$1
  shift
  steady cmake --build "$folder" -j "$jobs" "$@" > "$logs/build" 2>&1 || { cat "$logs/build"; exit 1; }
}

# single_tests FOLDER: says how many tests the shards of the suite that ran there last had.
single_tests() {
  sed -nE 's/^\[=+\] ([0-9]+) tests? from .* ran.*/\1/p' "$1/Testing/Temporary/LastTest.log" 2> /dev/null |
    awk -v folder="$1" '{ n += $1 } END { print n + 0 " single tests ran in " folder }' || true
}

# sanitized PRESET BINARIES...: some binaries of tests under a sanitizer. Each shard of one counts as a test.
sanitized() {
  local preset=$1 names
  shift
  headline "building for $preset"
  cmake --preset "$preset" > "$logs/configure" || { cat "$logs/configure"; exit 1; }
  build "build-$preset" --target "$@"
  names=$(IFS='|' && echo "$*")
  STRATA_SEEDS=$sanitized_seeds suite "$preset" --test-dir "build-$preset" -R "^(${names//fuzz_tests/Fuzz})\\."
  single_tests "build-$preset"
}

# Tests that sanitizers skip, because others there take the same paths in less time. None is of a suite that only they run.
pairs_of_meshes='ContextRanks.GoOnFromAnyMesh:TensorRanks.GoOnFromAnyMesh:WrittenCheckpoints.OfAnyMeshAreReadByAnyOther'
# Only --long runs these under the address sanitizer: the same memory as in others, looked at more often.
same_memory='RowProduct.ARowHasTheBits*:Context.RanksOfEachFamily*:Context.BitsDepend*:Pipeline.StagesOfMeshes*:GroupMpi.PassesTheTests*'
same_memory+=':*GroupOf.SumsOfSizes*/local:*GroupOf.EveryCallPattern*/local'
same_memory+=':Pipeline.WindowsOfOneStage*:Context.RanksHaveTheLosses*:Tensor.RanksHaveTheLosses*:CachedGeneration.EqualsPasses*'
same_memory+=':CachedGeneration.IsTheSame*:Exactness.SoItIsOnADeviceWithInteriors*'
same_memory+=':*Bf16Parity*:*TwentyStepsEqualTheReference*_ref:Tensor.RanksOfEachFamily*:Ranks.OfAnyNumber*'
same_memory+=':Tensor.BitsDepend*:Tensor.RanksNeedNot*:SegmentCompute.FrozenParameters*'
# Of each kind of block one family is left, by the fast kernels.
for families in 'smol*' 'tiny*' 'mistral*' 'sharded*' 'qwen2*' 'qwen3_cpu' 'gemma2*' 'gemma3_c*' 'gemma3_v*' 'phi3_cpu' 'olmo2_cpu' \
  'mha*' 'yarn*' 'window*' 'fp8*' 'float16*' 'gpt2_u*' 'gpt2_b*'; do
  same_memory+=":*TwentyStepsEqualTheReference/$families"
done
# And these under the thread sanitizer: the same threads as in others, with other arithmetic.
same_threads='Tensor.RanksOfEachFamily*:Context.RanksOfEachFamily*:Context.BitsDepend*:Context.RanksHaveTheLosses*:Tensor.RanksHaveTheLosses*'
same_threads+=':Context.RanksSwapHeads*:Pipeline.StagesOfMeshes*:SegmentCompute.Frozen*:SegmentCompute.Kept*:CachedGeneration.*:*Bf16Parity*:*Export*'
same_threads+=':*RanksIn.OneTwoAndFour*:Documents.ThatShareARow*:Pipeline.WindowsOfOneStage*:Tensor.BitsDepend*'
same_threads+=':Tensor.RanksNeedNot*:DeviceProbe.MeasuresTheEmulated*:SegmentCompute.TheLossAlone*'
same_threads+=':Exactness.SoItIs*:Ranks.StagesOfAHybrid*:Ranks.OfAnyNumber*:External.StateHasTheSameBits*'

# What --fast leaves out beside the slow tests: meshes and placements one after another, jobs of several processes,
# benchmarks of drives, and many random cases of one function.
not_fast='Ranks.OfAny*:Tensor.Ranks*:Tensor.Bits*:Context.Ranks*:Context.Bits*:Pipeline.*:WrittenCheckpoints.OfAnyMesh*:ContextRanks.*'
not_fast+=':TensorRanks.*:GroupMpi.*:Exactness.SoItIs*:ChunksOfPipelineRanks.*:*PipelineRanksOfModel.*:External.StateHas*'
not_fast+=':ReadAheadTest.TensorsMay*:BenchTest.*:WithFio.*:Peaks.*:*ProcessesOnNode.*:StartedRanks.*:LaunchNodes.*:LaunchHosts.*'
not_fast+=':Restarts.*:MatMul.Agrees*:LinearCrossEntropy.*:StateHash.IsTheSame*:BpeCuts.*:Json.PlainTexts*:DataThreads.*'
not_fast+=':DirectWriterTest.AnyOrder*:KilledExport.*:IoBench.*:Attention.Agrees*:RowProduct.ARow*:EarlyUpdate.*'

bash tests/install_packages.sh
bash tests/install_packages.sh tests/packages_to_compare.txt ||
  echo "Without these packages, tests that compare with their programs are skipped, and CUDA's parts are not fetched." >&2

# Suites that the address sanitizer runs whole.
sanitized_whole=(base_tests config_tests shard_tests plan_tests session_tests c_tests fuzz_tests memory_tests io_tests
                 io_fault_tests model_tests)

# A build from nothing takes half the processor time in large translation units, and leaves out what the address
# sanitizer runs. Who changes code wants small ones and all tests, and so does clang-tidy.
units=(-DSTRATA_TESTS_ELSEWHERE=)
if ! $fast && ! $long && [[ ! -e build/CMakeCache.txt ]]; then
  units=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12
         "-DSTRATA_TESTS_ELSEWHERE=$(IFS=';' && echo "${sanitized_whole[*]}")")
fi

headline "configuring and building"
bash cmake/cuda_wheels.sh || echo "What this machine lacks of the CUDA plugin's parts is left out." >&2
cmake --preset cpu "${units[@]}" > "$logs/configure" || { cat "$logs/configure"; exit 1; }
grep -h "CUDA plugin:" "$logs/configure" || true
build build

if $long; then
  bash tests/install_packages.sh <(echo clang-tidy)
  headline "builds of other types"
  tests_run=$((tests_run + 1))
  bash tests/builds.sh || tests_failed=$((tests_failed + 1))
  headline "clang-tidy"
  tests_run=$((tests_run + 1))
  bash tests/tree/clang_tidy.sh all || tests_failed=$((tests_failed + 1))
  headline "resources of CUDA kernels"
  tests_run=$((tests_run + 1))
  bash tests/cuda/resources.sh || {
    if (($? == 77)); then tests_skipped=$((tests_skipped + 1)); else tests_failed=$((tests_failed + 1)); fi
  }
fi

if $fast; then
  GTEST_FILTER="-$not_fast" suite "fast tests" --test-dir build -C Shards -L fast -LE _single
  single_tests build
else
  # Mistakes that are seeded take a build each, and show that tests find them.
  seeded=()
  if ! $long; then seeded=(-E '^Cuda(Host)?Mistakes\.'); fi
  suite "all tests" --test-dir build "${seeded[@]}"
  # Slow tests, such as plans of large models, and pairs of many meshes take minutes there. Fast ones take the same paths.
  skipped=$pairs_of_meshes
  if ! $long; then skipped+=":$same_memory"; fi
  more=(comm_tests kernels_tests exec_tests exec_fault_tests)
  if $long; then more+=(train_tests); fi
  GTEST_FILTER="-$skipped" sanitized asan "${sanitized_whole[@]}" "${more[@]}"
  # What each model family computes is one thread's arithmetic; what all of them share with threads is tested apart.
  skipped='*TwentyStepsEqualTheReference*:CachedGeneration.EqualsPassesOverTheWholeText*'
  if ! $long; then skipped+=":$same_threads"; fi
  GTEST_FILTER="-$skipped" sanitized tsan comm_tests io_tests io_fault_tests exec_tests exec_fault_tests
fi

headline "done"
if [[ -s $logs/failed ]]; then
  echo "These tests failed:"
  cat "$logs/failed"
fi
if ((tests_skipped > 0)); then echo "$tests_skipped tests skipped (their output says why)"; fi
if ((tests_run == 0)); then
  echo "No tests were found!!!"
  exit 1
fi
echo "$times"
passed_percent=$((100 * (tests_run - tests_failed) / tests_run))
echo "$passed_percent% tests passed, $tests_failed tests failed out of $tests_run"
((tests_failed == 0))
