#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 to a trained model: installs packages, builds `strata`, makes a small model and a tokenizer
# from the King James Bible, and trains it in less host memory than its training state takes, all of which
# streams through a directory on disk. Then lets it write. About 10 minutes on 2 cores, most of them the build.
#
#   examples/quickstart.sh                 run again, it keeps what is built and resumes what was interrupted
#   examples/quickstart.sh --no-install    leave packages alone
#   examples/quickstart.sh --dir DIR       work in DIR (default runs/quickstart); not on a RAM disk
#
# The build folder is build/, the one that tests/run.sh uses too.
set -euo pipefail

readonly usage="usage: examples/quickstart.sh [--no-install] [--dir DIR]"
root=$(cd "$(dirname "$0")/.." && pwd)
install=true
dir=$root/runs/quickstart
while (($# > 0)); do
  case $1 in
    --no-install) install=false ;;
    --dir)
      if (($# < 2)); then
        echo "$usage" >&2
        exit 2
      fi
      dir=$(realpath -m -- "$2")
      shift
      ;;
    -h | --help)
      echo "$usage"
      exit 0
      ;;
    *)
      echo "$usage" >&2
      exit 2
      ;;
  esac
  shift
done
cd "$root"

# The model has 7.0M parameters. Each has 16 bytes of training state: 2 + 2 of weights, 4 + 4 of Adam's
# moments, 4 of gradient, 106 MiB in all. The budget is for the whole process, the program included.
readonly host_memory=96MiB
readonly shape=(--vocab-size 2048 --hidden 256 --layers 8)
readonly training=(--sequence-length 128 --micro-batch 4 --steps 200 --lr 4e-3 --betas '0.9,0.95'
  --warmup-steps 10 --checkpoint-every 100 --threads 2)
readonly prompt="And the LORD said"

headline() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

# shown COMMAND...: prints a command, then runs it.
shown() {
  local word
  printf '$'
  for word in "${@/#"$root/"/}"; do
    if [[ $word == *[!A-Za-z0-9_./,:=+-]* ]]; then word=${word@Q}; fi
    printf ' %s' "$word"
  done
  printf '\n'
  "$@"
}

if $install; then
  headline "packages"
  if ! bash tests/install_packages.sh; then
    echo "quickstart: packages could not be installed. Run this as root or with sudo, or have the packages of" \
      "tests/packages.txt installed and run examples/quickstart.sh --no-install" >&2
    exit 1
  fi
fi
for tool in cmake ninja c++ bible; do
  if ! command -v "$tool" > /dev/null; then
    echo "quickstart: no program $tool (install the packages of tests/packages.txt; $tool is in" \
      "$(case $tool in ninja) echo ninja-build ;; c++) echo g++ ;; bible) echo bible-kjv ;; *) echo "$tool" ;; esac))" >&2
    exit 1
  fi
done

headline "build"
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ccache}
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true
cmake --preset cpu > /dev/null
targets=(strata)
# With a GPU here, its plugin too.
if command -v nvidia-smi > /dev/null && cmake --build build --target help | grep -q '^strata_cuda:'; then targets+=(strata_cuda); fi
cmake --build build --target "${targets[@]}" -j "${JOBS:-$(nproc)}"
strata=$root/build/bindings/cli/strata

mkdir -p "$dir/nvme"
cd "$dir"
# Each part is made under another name first, so that an interruption leaves nothing half done.
if [[ ! -f kjv.txt ]]; then
  headline "text"
  bible -f 'gen1:1-rev22:21' | sed 's/^[^ ]* //' > kjv.part
  mv kjv.part kjv.txt
  wc kjv.txt
fi
if [[ ! -d start ]]; then
  headline "a model with random weights"
  rm -rf start.part
  shown "$strata" init --data kjv.txt --out start.part "${shape[@]}"
  mv start.part start
fi

readonly train=("$strata" train --model start --data kjv.txt --out run --host-memory "$host_memory" --nvme nvme
  "${training[@]}")
if [[ -f run/model/model.safetensors ]]; then
  headline "training is complete already; to start over: rm -r $dir"
  tail -n 1 run/metrics.jsonl
elif [[ -f run/run.json ]]; then
  headline "training goes on"
  shown "${train[@]}" --resume
else
  headline "training in $host_memory"
  shown "${train[@]}"
fi

if [[ ! -f run/model/model.safetensors ]]; then
  echo "Stopped after a checkpoint; run examples/quickstart.sh again to go on."
  exit 0
fi
headline "a sample"
shown "$strata" generate --model run/model --prompt "$prompt" --max-new-tokens 60

headline "done"
echo "The run is in $dir/run: plan.txt (what went where), metrics.jsonl (a line a step), checkpoints/, model/"
echo "(a Hugging Face model directory)."
