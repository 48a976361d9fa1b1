#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the plans of results/plans_as_text.md as STRATA prints them now, in place of those below "After", and the answers
# that are found in their text. Read the difference as someone who knows nothing of Strata. Takes a minute.
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
nvme_count = 1
nvme_read_bytes_per_s = 3e9
nvme_write_bytes_per_s = 2e9
nvme_mixed_bytes_per_s = 5e9
nvme_latency_s = 1e-3
nvme_rated_write_bytes = 600e12
cpu_s_per_io_gb = 0.05
checksum_bytes_per_s = 10e9
optimizer_bytes_per_s = 50e9
EOF

# plan NUMBER MODEL MACHINE OPTION...
plan() {
  (cd "$work" && "$strata" plan --model "$2" --machine "$3" "${@:4}" 2> "$1.err" || cat "$1.err") > "$work/plan$1"
}
plan 1 7M "$work/laptop.toml" --host-memory 128MiB --sequence-length 128 --micro-batch 4 --steps 200
plan 2 8B "$machines/rtx4090-4nvme.toml" --host-memory 24GiB --sequence-length 2048 --accumulate 8 --steps 1000 --compare
plan 3 70B "$machines/h200-8nvme.toml" --host-memory 256GiB --sequence-length 4096 --accumulate 16 --steps 1000 --compare
plan 4 405B "$machines/h200-8nvme.toml" --sequence-length 4096 --accumulate 16 --steps 1000
plan refused 8B "$machines/rtx4090-4nvme.toml" --host-memory 16GiB --sequence-length 2048 --accumulate 8 --offload host

# What the group of a pattern, which begins with a word, is in the text of plan 2, or of another.
said() { sed -nE "s/(^|.* )$1.*/\2/p" "$work/plan${2:-2}" | head -1 | grep . || echo "$1" >> "$work/unsaid"; }
state_in() { awk -v tier="$1" '/^[a-z]/ { at = $1 } at == tier && /optimizer state$/ { print tier, $1, $2 }' "$work/plan2"; }
step_of() { echo "a step takes $(said "$1 +([0-9.]+ [a-z]+( [0-9]+ [a-z]+)?)  +.*")"; }
life_of() { said "$1 .* ([0-9.]+%)( .*)?"; }
planned() { said '([0-9.]+ [a-z]+( [0-9]+ [a-z]+)?) \(predicted'; }
answers() {
  cat <<EOF
| question | answer |
|---|---|
| Where is the optimizer state? | $(state_in device), $(state_in nvme) |
| What limits a step? | $(said 'limited by ([^,]*),'), $(said 'limited by [^,]*, (.*)'): $(said 'overlap: NVMe drives ([^(]*\([^)]*\))') |
| What does recomputation cost? | $(said '([0-9.]+ m?s of compute) is for activations.*') |
| Why does a step take longer than that? | NVMe drives $(said 'NVMe drives (wait [^,]*, meanwhile: [^,]*),') |
| What would one more drive change? | $(step_of 'one more drive \(5\)'), not $(planned) |
| And how worn would they be with it? | $(life_of 'one more drive \(5\)') of their rated life, not $(life_of 'as planned') |
| What would twice the host memory change? | $(step_of 'twice the host memory \(48 GiB\)'), not $(planned) |
| How long is the run? | $(said 'run +(1000 steps: [^,]*, [^,]*),') |
| What is saved meanwhile? | $(said '([0-9]+ checkpoints? of .*)') |
| How worn are the drives after it? | $(said '([0-9.]+ .B written, .* of the drives. rated life)') |
| How long could the drives go on? | $(said 'rated for [^:]*: (.*)') |
| Would it help to keep activations? | no, it $(said '--activations keep +(does not fit: .*) \(') |
| How much of --host-memory does the program itself take? | $(said '([0-9.]+ MiB)  program, libraries.*') |
| Which options fit, and is there a faster one? | $(said '(--offload auto) +.* as planned:.*'); $(said '(--optimizer-mode in-backward --clip 0) .*') is $(said '--clip 0 .* ([0-9]+% faster, but .*)') |
| Would one more drive help the 70B model, which arithmetic limits? | a step takes $(said 'one more drive \(9\) +([0-9.]+ [a-z]+( [0-9]+ [a-z]+)?)  +.*' 3), not $(said 'step +([^(]*[^ (]) \(predicted' 3); $(said '(compute waits [^,]*, meanwhile: [^,]*),' 3) |
| Why are 16 GiB without drives refused? | $(said 'error: does not fit (with [^(]*[^ (]) .*' refused); $(said '(with this --offload the least that fits is .*)' refused) |
EOF
}

answers > "$work/answers"
if [ -e "$work/unsaid" ]; then
  echo "plans_as_text: the plans say nothing like: $(cat "$work/unsaid")" >&2
  exit 1
fi
awk -v work="$work" '
  /^## / { if (old) print ""; old = 0 }
  old { next }
  /^\| question/ {
    file = work "/answers"
    while ((getline line < file) > 0) print line
    old = 1
    next
  }
  { print }
  /^After/ {
    print ""
    file = work "/plan" ++number
    while ((getline line < file) > 0) print (line == "" ? "" : "    " line)
    old = 1
  }' "$page" > "$work/page"
cp "$work/page" "$page"
