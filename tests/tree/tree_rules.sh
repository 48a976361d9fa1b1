#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rules of the tree that a machine can check. Prints one line for each offence, file:line first.
#
#   tree_rules.sh RULE [ROOT]     RULE: layers homes headers environment process spdx text sizes format all
#
# ROOT is by default the tree of this script. Files that git ignores do not count; without git, build folders
# do not.
set -euo pipefail

rule=${1:?usage: tree_rules.sh RULE [ROOT]}
root=${2:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$root"

# What the files of a folder may include of ours, beside their own folder: the layers of engine/ARCHITECTURE.md.
# The longest folder that matches a file counts. Where a folder in it has a row, a row covers its own files alone.
layer_table='
engine/base       :
io                : engine/base
kernels           : engine/base
kernels/sizes     : engine/base kernels kernels/cpu kernels/cuda
kernels/ref       : engine/base kernels
kernels/cpu       : engine/base kernels kernels/ref
kernels/emulated  : engine/base kernels
kernels/cuda      : engine/base kernels
engine/config     : engine/base
engine/text       : engine/base engine/config
engine/template   : engine/base engine/config engine/text
engine/data       : engine/base engine/config io engine/text engine/template
engine/comm       : engine/base
engine/comm/mpi   : engine/base engine/comm
engine/model      : engine/base engine/config kernels
engine/model_files : engine/base engine/config io kernels engine/model
engine/memory     : engine/base engine/config engine/comm io kernels
engine/shard      : engine/base engine/config engine/comm io kernels engine/model engine/memory
engine/plan       : engine/base engine/config engine/model engine/shard
engine/exec       : engine/base engine/config engine/comm io kernels kernels/emulated engine/model engine/memory engine/shard engine/plan
engine/checkpoint : engine/base engine/config io kernels engine/model engine/model_files engine/shard engine/plan engine/exec
engine/train      : engine/base engine/config engine/text engine/data engine/comm io kernels engine/model engine/model_files engine/memory engine/shard engine/plan engine/exec engine/checkpoint
engine/report     : engine/base engine/config engine/text engine/train
engine/session    : engine/base engine/config engine/text engine/data io kernels engine/comm engine/model engine/model_files engine/memory engine/plan engine/exec engine/checkpoint engine/train
'

# Where the headers of a third party may be included. One in a folder, as <name/file.h>, must be listed.
home_table='
liburing\.h                     io/ring_uring
dnnl                            kernels/cpu/
oneapi/                         kernels/cpu/
tbb/                            kernels/cpu/
hwy/                            kernels/cpu/
nlohmann/                       engine/config/json|bindings/cli/
toml\+\+/                       engine/config/toml_reader
yaml-cpp/                       engine/config/yaml_reader
xxhash\.h                       io/
pcre2\.h                        engine/model/name_pattern|engine/text/
utf8proc\.h                     engine/text/
sentencepiece                   engine/text/
mpi\.h                          engine/comm/mpi/|benchmarks/collectives_bench
openssl/                        engine/comm/message_auth
nccl\.h                         kernels/cuda/device/nccl_library
cuda                            kernels/cuda/
cublas                          kernels/cuda/
nvtx3/                          kernels/cuda/
spdlog/                         engine/base/
gtest/                          tests/
gmock/                          tests/
benchmark/benchmark\.h          benchmarks/
'

# Every file of the tree that exists, one a line.
files() {
  if git rev-parse --git-dir > /dev/null 2>&1; then
    git -c core.quotePath=off ls-files -co --exclude-standard |
      grep -vxFf <(git -c core.quotePath=off ls-files -d)
  else
    find . -type f -not -path './.git/*' -not -path './build*' -not -path './out/*' -not -path './runs/*' -printf '%P\n'
  fi
}
sources() { files | grep -E '\.(h|c|cpp|cuh|cu)$'; }
texts() { files | grep -E '\.(h|c|cpp|cuh|cu|sh|cmake|py|toml|md)$|CMakeLists\.txt$|^\.ci/'; }

# "file:line:included" for every #include with the given brackets.
includes() {
  sources | xargs -r -d '\n' grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*$1" /dev/null |
    sed -E "s/^([^:]+):([0-9]+):[^\"<]*[\"<]([^\">]+)[\">].*/\1:\2:\3/" || true
}

check_layers() {
  includes '"' | awk -F: -v table="$layer_table" -v homes="$home_table" '
    function folder_of(path,   best, f) {
      best = ""
      for (f in allowed) if (index(path, f "/") == 1 && length(f) > length(best)) best = f
      return best in divided && substr(path, length(best) + 2) ~ "/" ? "" : best
    }
    BEGIN {
      rows = split(table, row, "\n")
      for (i = 1; i <= rows; ++i) {
        if (split(row[i], part, ":") < 2) continue
        gsub(/[[:space:]]/, "", part[1])
        allowed[part[1]] = " " part[2] " "
      }
      for (f in allowed) if (match(f, "/[^/]*$") && substr(f, 1, RSTART - 1) in allowed)
        divided[substr(f, 1, RSTART - 1)] = 1
      rows = split(homes, row, "\n")
      for (i = 1; i <= rows; ++i) if (split(row[i], part, " ") == 2) third_party[part[1]] = 1
    }
    {
      from = folder_of($1)
      to = folder_of($3)
      for (pattern in third_party) if ($3 ~ ("^" pattern)) next
      if (from == "") {
        if ($1 ~ /^(engine|io|kernels)\// && $1 !~ /^engine\/engine[a-z_]*\.(h|cpp)$/)
          print $1 ":" $2 ": in no layer: give its folder a row in tests/tree/tree_rules.sh"
        next
      }
      if ($3 !~ /^(engine|io|kernels|bindings|tests|examples|benchmarks)\//) {
        print $1 ":" $2 ": include \"" $3 "\" from the root of the tree"
      } else if (to != from && index(allowed[from], " " to " ") == 0) {
        print $1 ":" $2 ": " from " may not include " $3
      } else if (to == "") {
        print $1 ":" $2 ": " from " may not include " $3
      }
    }'
}

check_homes() {
  includes '[<"]' | awk -F: -v table="$home_table" '
    BEGIN {
      rows = split(table, row, "\n")
      for (i = 1; i <= rows; ++i) if (split(row[i], part, " ") == 2) home[part[1]] = part[2]
      known = "engine|io|kernels|bindings|benchmarks|examples|tests|fmt|arpa|linux|net|netinet|sanitizer|sys"
    }
    {
      for (pattern in home) {
        if ($3 !~ ("^" pattern) || index($1, "tests/") == 1) continue
        at_home = 0
        for (i = split(home[pattern], place, "|"); i > 0; --i) if (index($1, place[i]) == 1) at_home = 1
        if (!at_home) print $1 ":" $2 ": <" $3 "> has its home in " home[pattern] "*"
        next
      }
      if (index($1, "tests/") != 1 && $3 ~ "/" && $3 !~ "^(" known ")/")
        print $1 ":" $2 ": <" $3 "> has no home: give it a row in tests/tree/tree_rules.sh"
    }'
}

# Every header has its guard before anything else, so that it can stand alone and come twice. Highway's
# *-inl.h are compiled once for each instruction set and guard themselves.
check_headers() {
  sources | grep -E '\.(h|cuh)$' | grep -v -- '-inl\.h$' | xargs -r -d '\n' awk '
    FNR == 1 { next }
    /^[[:space:]]*(\/\/.*)?$/ { next }
    { if ($0 !~ /^#pragma once/ && FILENAME != "bindings/c/strata.h") print FILENAME ":" FNR ": #pragma once comes first"
      nextfile }'
}

# The environment is read where the program starts, and handed down.
check_environment() {
  sources | grep -vE '^(bindings|tests|benchmarks|examples)/' |
    xargs -r -d '\n' grep -nE '\b(secure_)?getenv\b|\benviron\b' /dev/null |
    sed -E 's/$/   <- only bindings read the environment/' || true
}

# A library neither prints nor ends the process: it reports to the sinks of its caller
# (engine/base/environment.h). A failed check of ours, and the child that becomes fio, do.
check_process() {
  sources | grep -E '^(engine|io|kernels)/' | grep -vE '^(engine/base/check|io/fio_process)\.cpp$' |
    xargs -r -d '\n' grep -nE '\b(_exit|quick_exit|std::exit|stdout|stderr|STD(OUT|ERR)_FILENO|std::(cout|cerr|puts|printf))\b' /dev/null |
    grep -vE '^[^:]+:[0-9]+: *//' | sed -E 's/$/   <- only bindings print or end the process/' || true
}

check_spdx() {
  texts | grep -vE '\.md$' | xargs -r -d '\n' awk '
    BEGIN { for (i = 1; i < ARGC; ++i) without[ARGV[i]] = 1 }
    /SPDX-License-Identifier: Apache-2.0/ { delete without[FILENAME] }
    FNR == 2 { nextfile }
    END { for (file in without) print file ":1: the first line says SPDX-License-Identifier: Apache-2.0" }'
}

# Nothing that is true on one machine only, nothing left for later, no tabs.
check_text() {
  texts | grep -v '^tests/tree/' | xargs -r -d '\n' grep -nE \
    '/(home|root|Users)/[A-Za-z0-9_.-]+/|/work/|\bTODO\b|\bFIXME\b|\bXXX\b' /dev/null |
    sed -E 's/$/   <- machine path or unfinished work/' || true
  sources | xargs -r -d '\n' grep -nP '\t|[ \t]+$|\r' /dev/null | sed -E 's/$/   <- tab or trailing space/' || true
}

check_sizes() {
  sources | xargs -r -d '\n' awk '
    function most(file) { return file == "bindings/c/strata.h" ? 600 : 450 }  # a C library has one header
    length($0) > 100 { print FILENAME ":" FNR ": " length($0) " columns, at most 100" }
    { lines[FILENAME] = FNR }
    END { for (file in lines) if (lines[file] > most(file)) print file ":" lines[file] ": " lines[file] " lines, at most " most(file) }'
}

check_format() {
  local tool=${CLANG_FORMAT:-clang-format}
  if ! command -v "$tool" > /dev/null; then
    echo "clang-format is not installed" >&2
    exit 77
  fi
  { sources | grep -E '\.(h|cpp)$' | xargs -r -d '\n' "$tool" --dry-run -Werror 2>&1 || true; } |
    awk -F: '/^[^ :]+:[0-9]+:[0-9]+: error: / && !seen[$1]++ { print $1 ":" $2 ": clang-format -i would change it" }'
}

case $rule in
  layers | homes | headers | environment | process | spdx | text | sizes | format) found=$("check_$rule") ;;
  all)
    found=$(for each in layers homes headers environment process spdx text sizes format; do "check_$each"; done)
    ;;
  *)
    echo "tree_rules.sh: no rule $rule" >&2
    exit 2
    ;;
esac
if [[ -n $found ]]; then
  echo "$found"
  exit 1
fi
