#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The memory ceiling: a model of 342.6M parameters (5.5 GB of state) trained with --host-memory 1GiB inside a memory
# cgroup of 1.5 GiB, where the kernel kills what takes more. Fails where the program's own count and the kernel's peak
# differ by more than 5 % and 64 MiB, or a budget of 128 MiB is not refused within 2 seconds. Needs root for the
# cgroup and 8 GB in DIRECTORY. results/ceiling.md holds one run of it.
#
#   benchmarks/ceiling.sh STRATA TEXT DIRECTORY
set -euo pipefail
strata=$(realpath "$1")
text=$(realpath "$2")
directory=$3
readonly limit=$((1536 << 20))

mkdir -p "$directory/nvme"
cd "$directory"
if [[ ! -d big ]]; then
  "$strata" init --data "$text" --out big --vocab-size 16000 --hidden 1024 --layers 26 --heads 16 --kv-heads 8 \
    --feed-forward 3072 --seed 1
fi

if [[ -d /sys/fs/cgroup/memory ]]; then
  group=/sys/fs/cgroup/memory/strata-ceiling
  bound=memory.limit_in_bytes
  peak=memory.max_usage_in_bytes
else
  group=/sys/fs/cgroup/strata-ceiling
  bound=memory.max
  peak=memory.peak
fi
mkdir "$group"
trap 'rmdir "$group"' EXIT
echo "$limit" > "$group/$bound"
train=("$strata" train --model big --data "$text" --out run --nvme nvme --sequence-length 256 --accumulate 2 --recipe bf16
  --steps 4 --lr 1e-4 --force --json)
summary=$(bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "${train[@]}" --host-memory 1GiB)
echo "$summary" | grep -E '"(arena_bytes|counted_bytes|kernel_peak_bytes|step_read_bytes|step_write_bytes|median_step_s)"'
echo "peak of the cgroup, page cache included: $(cat "$group/$peak") bytes"

begin=$(date +%s.%N)
code=0
"${train[@]}" --host-memory 128MiB > /dev/null || code=$?
awk -v begin="$begin" -v end="$(date +%s.%N)" -v code="$code" 'BEGIN {
  printf "128 MiB: exit code %d after %.2f s\n", code, end - begin
  exit !(code == 3 && end - begin < 2)
}'
echo "$summary" | awk -F'[:,]' '/"counted_bytes"/ { counted = $2 } /"kernel_peak_bytes"/ { peak = $2 } END {
  apart = counted > peak ? counted - peak : peak - counted
  printf "the two counts are %.1f MiB apart\n", apart / 1048576
  exit !(apart <= 0.05 * peak + 64 * 1048576)
}'
