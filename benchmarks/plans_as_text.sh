#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the plans of results/plans_as_text.md as STRATA prints them now, in place of those below "After". Read the
# difference as someone who knows nothing of Strata. Takes a minute.
#
#   benchmarks/plans_as_text.sh STRATA
set -euo pipefail
strata=$(realpath "$1")
cd "$(dirname "$0")/.."
readonly page=benchmarks/results/plans_as_text.md
machines=$PWD/examples/machines
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# model NAME HIDDEN LAYERS HEADS KV_HEADS FEED_FORWARD VOCABULARY POSITIONS TIED
model() {
  mkdir "$work/$1"
  cat > "$work/$1/config.json" <<EOF
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": $2, "num_hidden_layers": $3,
 "num_attention_heads": $4, "num_key_value_heads": $5, "intermediate_size": $6, "vocab_size": $7,
 "max_position_embeddings": $8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": $9}
EOF
}
model 7M 256 8 8 8 704 2048 2048 true
model 8B 4096 32 32 8 14336 128256 131072 false
model 70B 8192 80 64 8 28672 128256 131072 false
model 405B 16384 126 128 8 53248 128256 131072 false
cat > "$work/laptop.toml" <<EOF
name = "laptop"
device = "cpu"
cores = 8
host_bytes = "16GB"
matmul_flops_per_s = 400e9
memory_bytes_per_s = 50e9
nvme_read_bytes_per_s = 3e9
nvme_write_bytes_per_s = 2e9
nvme_mixed_bytes_per_s = 5e9
nvme_latency_s = 1e-3
nvme_rated_write_bytes = 600e12
cpu_s_per_io_gb = 0.05
checksum_bytes_per_s = 10e9
optimizer_bytes_per_s = 50e9
EOF

# plan NUMBER MODEL MACHINE DRIVES OPTION...
plan() {
  local drives
  drives=$(seq -s, -f '/mnt/%g' "$4")
  (cd "$work" && "$strata" plan --model "$2" --machine "$3" --nvme "$drives" "${@:5}" 2> "$1.err" || cat "$1.err" >&2) \
    > "$work/plan$1"
}
plan 1 7M "$work/laptop.toml" 1 --host-memory 128MiB --sequence-length 128 --micro-batch 4 --steps 200
plan 2 8B "$machines/rtx4090-4nvme.toml" 4 --host-memory 24GiB --sequence-length 2048 --accumulate 8 --steps 1000 --compare
plan 3 70B "$machines/h200-8nvme.toml" 8 --host-memory 256GiB --sequence-length 4096 --accumulate 16 --steps 1000
plan 4 405B "$machines/h200-8nvme.toml" 8 --sequence-length 4096 --accumulate 16 --steps 1000

awk -v work="$work" '
  /^## / { if (old) print ""; old = 0 }
  old { next }
  { print }
  /^After/ {
    print ""
    file = work "/plan" ++number
    while ((getline line < file) > 0) print (line == "" ? "" : "    " line)
    old = 1
  }' "$page" > "$work/page"
cp "$work/page" "$page"
