#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A step with its state on NVMe against DeepSpeed ZeRO-3, in turns, with a quarter of its memory.
# usage: compare_deepspeed.sh STEP_BENCH SCRATCH_DIR PYTHON DEEPSPEED_SCRIPT [more options of step_bench]
set -eu
if [ $# -lt 4 ]; then
  sed -n '3,4s/^# //p' "$0" >&2
  exit 2
fi
bench=$1 scratch=$2 python=$3 script=$4
shift 4
exec "$bench" --nvme "$scratch" --sections deepspeed --rounds 3 --deepspeed "$python" \
  --deepspeed-script "$script" "$@"
