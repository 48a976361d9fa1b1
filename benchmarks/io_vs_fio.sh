#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Our I/O engine against fio: same file system, block size, depth, number of files and mix, turn by turn, with
# fio against itself as the control; then without checksums, and what checksums cost in pairs. Prints Markdown
# tables; results/io_vs_fio.md holds one run of it.
#
#   benchmarks/io_vs_fio.sh STRATA DIRECTORY [SECONDS [ROUNDS]]
#
# MODES=read,write,mixed and FILES=1,4 choose shapes, for a machine that is idle for minutes only. It fails
# (exit code 1) where, with checksums on, the 95 % interval of strata/fio lies wholly below 0.97, or where the
# processor time per GB without checksums is more than 1.1 times fio's.
set -euo pipefail
strata=$1
directory=$2
seconds=${3:-0.5}
rounds=${4:-21}
modes=${MODES:-read,write,mixed}
files=${FILES:-1,4}
failed=0

bench() {
  "$strata" bench io --nvme "$directory" --mode "$modes" --block 1MiB,4MiB --depth 16 \
    --seconds "$seconds" --rounds "$rounds" --size 2GiB --write-limit 4TiB "$@"
}

echo "Checksums on:"
echo
on=$(bench --compare-fio --files "$files") || failed=1
echo "$on"
echo
echo "Checksums off, as fio has none: the cost of everything else."
echo
# Its verdict on rates is another question than the one that is asked here.
off=$(bench --compare-fio --files "$files" --no-checksums) || (($? == 1)) || failed=1
echo "$off"
echo
echo "Checksums on and off by turns:"
echo
bench --compare-checksums --files "$files"
echo
# Columns 11 and 12 are the processor times per GB.
echo "$off" | awk -F'|' 'NR > 2 && $11 > 1.1 * $12 { print "too much processor time:" $2 $3; bad = 1 } END { exit bad }' ||
  failed=1
exit "$failed"
