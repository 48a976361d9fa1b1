#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Forward and backward against PyTorch eager, in turns.
# usage: compare_torch.sh STEP_BENCH SCRATCH_DIR PYTHON TORCH_SCRIPT [more options of step_bench]
set -eu
if [ $# -lt 4 ]; then
  sed -n '3,4s/^# //p' "$0" >&2
  exit 2
fi
bench=$1 scratch=$2 python=$3 script=$4
shift 4
exec "$bench" --nvme "$scratch" --sections resident --rounds 5 --torch "$python" \
  --torch-script "$script" "$@"
