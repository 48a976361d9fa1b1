#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Our I/O engine against fio: same file system, block size, depth, number of files and mix, turn by turn, with
# fio against itself as the control. Prints Markdown tables; results/io_vs_fio.md holds one run of it.
#
#   benchmarks/io_vs_fio.sh STRATA DIRECTORY [SECONDS [ROUNDS]]
#
# It fails (exit code 1) where, with checksums on, the 95 % interval of strata/fio lies wholly below 0.97.
set -euo pipefail
strata=$1
directory=$2
seconds=${3:-1}
rounds=${4:-21}

compare() {
  "$strata" bench io --nvme "$directory" --compare-fio --mode read,write,mixed --block 1MiB,4MiB \
    --depth 16 --seconds "$seconds" --rounds "$rounds" --size 2GiB --write-limit 4TiB "$@" 2>/dev/null
}

echo "Checksums on:"
echo
on=$(compare --files 1,4)
echo "$on"
echo
echo "Checksums off (fio has none): the cost of everything else."
echo
compare --files 1 --no-checksums
echo
# Column 9 is "median [low, high]".
echo "$on" | awk -F'|' '
  NR > 2 { split($9, part, /[][, ]+/); if (part[4] < 0.97) { print "below 0.97:" $2 $3 "files" $5; bad = 1 } }
  END { exit bad }'
