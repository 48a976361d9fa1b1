#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What works on this machine's GPU, as one table: a line for each part, PASS, FAIL or SKIP with the reason, and the
# figures below it. Under ten minutes.
#
#   run.sh [PART...]     parts: doctor kernels train torch ranks generate store figures ops sanitizer (all of them)
#
# Runs from the folder that bundle.sh packed, or from a tree with a build folder (BUILD, by default build). LOGS is a
# folder for what each part printed, WRITER the sizes of the model that generates, TORCH_DEVICE where PyTorch computes.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
own_libraries=
logs=${LOGS:-$(mktemp -d)}
mkdir -p "$logs"
if [[ -d $here/bin ]]; then
  bin=$here/bin
  data=$here/tests/data/model text=$here/tests/data/cli/harbour.txt
  own_libraries=$here/lib
  strata=$bin/strata tests=$bin/kernels_tests
  library=$bin/libstrata.so package=$here/python
else
  root=$(cd "$here/../.." && pwd)
  build=${BUILD:-$root/build}
  bin=$build/bindings/cli
  data=$root/tests/data/model text=$root/tests/data/cli/harbour.txt
  strata=$bin/strata tests=$build/tests/kernels/kernels_tests
  library=$build/bindings/c/libstrata.so package=$root/bindings/python
fi
# cuBLASLt, cuDNN and NCCL where the toolkit or the Python packages have them; compute-sanitizer of the toolkit.
while IFS= read -r folder; do
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done < <(echo /usr/local/cuda/lib64; python3 -c 'import nvidia, os
for path in nvidia.__path__:
    for folder, _, files in os.walk(path):
        if any(name.startswith(("libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2")) for name in files): print(folder)' 2> /dev/null)
export PATH=$PATH:/usr/local/cuda/bin
export STRATA_PLUGIN_PATH=${STRATA_PLUGIN_PATH:-$bin}

# Strata's programs find the libraries of the bundle; PyTorch has its own.
with_own() { LD_LIBRARY_PATH=${own_libraries:+$own_libraries:}${LD_LIBRARY_PATH:-} "$@"; }

failed=0
# report PART STATUS WORDS
report() {
  printf '%-10s %-5s %s\n' "$1" "$2" "$3"
  if [[ $2 == FAIL ]]; then failed=1; fi
}

# lines_of FILE: its last lines, indented.
lines_of() { tail -n "${2:-15}" "$1" | sed 's/^/    /'; }

part_doctor() {
  with_own "$strata" doctor > "$logs/doctor" 2>&1
  if grep -E '^OK +gpu [0-9]' "$logs/doctor" > "$logs/gpu"; then
    report doctor PASS "$(tr -s ' ' < "$logs/gpu" | head -n 1)"
  else
    report doctor FAIL "$(grep -E 'gpu' "$logs/doctor" | tr -s ' ' | head -n 1)"
  fi
}

# Every op against the plain loops, twice with equal bits, and every backward against differences of its forward.
part_kernels() {
  STRATA_TEST_PLUGIN=$STRATA_PLUGIN_PATH with_own timeout 240 "$tests" --gtest_filter='*OnTheDevice*' > "$logs/kernels" 2>&1
  local status=$? passed skipped
  passed=$(grep -cE '^\[       OK \]' "$logs/kernels")
  skipped=$(grep -E '^\[  SKIPPED \] [^0-9]' "$logs/kernels" | tr -s ' ' | cut -d ' ' -f 4 | sort -u | tr '\n' ' ')
  if ((status == 0 && passed > 0)); then
    report kernels PASS "$passed tests: ops agree with the plain loops and repeat their bits, backwards are derivatives${skipped:+; skipped: $skipped}"
  else
    report kernels FAIL "exit $status; tests that fail:"
    grep -E '^\[  FAILED  \]|unknown|cuda:' "$logs/kernels" | sort -u | head -n 20 | sed 's/^/    /'
  fi
}

# losses FILE: the losses of a run's metrics.
losses() {
  python3 - "$1" << 'PYTHON'
import json, sys
print(" ".join(repr(row["loss"]) for row in map(json.loads, open(sys.argv[1])) if "loss" in row))
PYTHON
}

# train NAME DEVICE MODEL RECIPE OPTIONS...: trains 8 steps on random tokens; prints losses.
train() {
  local out=$logs/run-$1 device=$2 model=$3 recipe=$4
  shift 4
  rm -rf "$out"
  with_own timeout 60 "$strata" train --model "$data/$model" --data "$logs/tokens.bin" --out "$out" --device "$device" --recipe "$recipe" \
    --steps 8 --sequence-length 32 --micro-batch 2 --lr 1e-3 "$@" > "$out.log" 2>&1 || return 1
  losses "$out/metrics.jsonl"
}

# least NAME MODEL RECIPE: the options of a run with its state on a drive and the least memory that is not refused.
least() {
  train "$1" cuda "$2" "$3" --nvme "$logs" --offload nvme --host-memory 1MiB --device-memory 1MiB > /dev/null
  grep -oE 'the least that fits is .*' "$logs/run-$1.log" | grep -oE -- '--(host|device)-memory [0-9A-Za-z]+' | tail -n 2 |
    tr '\n' ' '
}

# state NAME: the hash of a run's weights and moments.
state() { grep -oE '^state +[0-9a-f]{16}' "$logs/run-$1.log" | tr -s ' ' | cut -d ' ' -f 2; }

# What runs learn.
write_tokens() {
  python3 - "$logs/tokens.bin" << 'PYTHON'
import random, struct, sys
random.seed(7)
tokens = [random.choice((3, 5, 8, 13, 21, 34)) for _ in range(4096)]
open(sys.argv[1], "wb").write(b"".join(struct.pack("<H", token) for token in tokens))
PYTHON
}

# The same losses as on the CPU: 1e-4 of them in fp32, 2e-2 in bf16 and fp16. Resident and offloaded: the same bits.
part_train() {
  write_tokens
  local model recipe cpu gpu moved bad=0 count=0
  for model in gqa_untied gpt2 qwen3 gemma2 window; do
    for recipe in fp32 bf16 fp16; do
      if [[ ! -d $data/$model ]]; then continue; fi
      if [[ $recipe == fp16 && $model != gqa_untied ]]; then continue; fi
      count=$((count + 1))
      cpu=$(train "$model-$recipe-cpu" cpu "$model" "$recipe") || { cpu=; }
      gpu=$(train "$model-$recipe-gpu" cuda "$model" "$recipe") || { gpu=; }
      if ! python3 - "$cpu" "$gpu" "$recipe" > "$logs/compare" 2>&1 << 'PYTHON'
import sys
a, b = [list(map(float, text.split())) for text in sys.argv[1:3]]
limit = 1e-4 if sys.argv[3] == "fp32" else 2e-2
if not a or len(a) != len(b): sys.exit(f"{len(a)} losses on the CPU, {len(b)} on the GPU")
worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
print(f"worst difference {worst:.1e}, limit {limit:.0e}")
sys.exit(not worst <= limit or any(x != x for x in a + b))
PYTHON
      then
        bad=$((bad + 1))
        echo "    $model $recipe: $(tail -n 1 "$logs/compare")"
        lines_of "$logs/run-$model-$recipe-gpu.log" 3
      fi
      moved=$(train "$model-$recipe-again" cuda "$model" "$recipe") || { moved=; }
      if [[ -n $gpu && $moved != "$gpu" ]]; then
        bad=$((bad + 1))
        echo "    $model $recipe: a rerun has other losses"
      fi
      local words
      words=$(least "$model-$recipe-refused" "$model" "$recipe") || { words=; }
      if [[ -z $words ]]; then
        bad=$((bad + 1))
        echo "    $model $recipe: the least memory is not known, so nothing was on a drive"
      fi
      # shellcheck disable=SC2086
      moved=$(train "$model-$recipe-offloaded" cuda "$model" "$recipe" --nvme "$logs" --offload nvme $words) || { moved=; }
      if [[ -n $gpu && ($moved != "$gpu" ||
            $(state "$model-$recipe-offloaded") != $(state "$model-$recipe-gpu")) ]]; then
        bad=$((bad + 1))
        echo "    $model $recipe: with its state on a drive ($words) it has other bits than resident"
        lines_of "$logs/run-$model-$recipe-offloaded.log" 3
      fi
    done
  done
  if ((bad == 0 && count > 0)); then
    report train PASS "$count runs have the CPU's losses, and the same bits again and with their state on a drive"
  else
    report train FAIL "$bad differences in $count runs"
  fi
}

# The losses of PyTorch, which computes the same steps: 1e-4 of them in fp32, 2e-2 in bf16; and what they change of weights,
# which shows every gradient.
part_torch() {
  write_tokens
  local model recipe limit status out why='' count=0 left='' worst=''
  for model in gqa_untied gpt2 qwen3 gemma2 window; do
    for recipe in fp32 bf16; do
      limit=$([[ $recipe == fp32 ]] && echo 1e-4 || echo 2e-2)
      out=torch-$model-$recipe
      if ! train "$out" cuda "$model" "$recipe" --shuffle off --schedule constant --clip 0 --weight-decay 0 \
        --betas 0.9,0.999 > /dev/null; then
        report torch FAIL "$model, $recipe: $(tail -n 1 "$logs/run-$out.log")"
        return
      fi
      HF_HUB_OFFLINE=1 timeout 60 python3 "$here/losses_torch.py" "$data/$model" "$logs/tokens.bin" "$logs/run-$out" \
        2 32 1e-3 $limit "${TORCH_DEVICE:-cuda}" > "$logs/$out" 2>&1
      status=$?
      if ((status == 77)); then
        left+="${left:+ }$model"
        why=$(tail -n 1 "$logs/$out")
        break
      elif ((status != 0)); then
        report torch FAIL "$model, $recipe: $(tail -n 1 "$logs/$out")"
        return
      fi
      count=$((count + 1))
      worst+="    $model, $recipe: $(tail -n 1 "$logs/$out")"$'\n'
    done
  done
  if ((count == 0)); then
    report torch SKIP "$why"
  else
    report torch PASS "$count runs have PyTorch's losses and changes of weights${left:+; without $left: $why}"
    printf '%s' "$worst"
  fi
}

# Ranks with a GPU each that send each other memory have the bits of ranks that exchange through the host.
part_ranks() {
  local gpus direct host words bad=0 count=0
  gpus=$(with_own "$strata" doctor 2> /dev/null | grep -cE '^[A-Z]+ +gpu [0-9]')
  if ((gpus < 2)); then
    report ranks SKIP "ranks that exchange by NCCL need two GPUs or more; this machine has $gpus"
    return
  fi
  write_tokens
  for words in "bf16 --reduce-dtype bf16" "fp32 --tensor-ranks 2" "bf16 --context-ranks 2" "bf16 --pipeline-ranks 2 --accumulate 2"; do
    count=$((count + 1))
    # shellcheck disable=SC2086
    direct=$(train ranks-direct cuda gqa_untied $words --ranks 2 --device-exchange direct) || { direct=; }
    # shellcheck disable=SC2086
    host=$(train ranks-host cuda gqa_untied $words --ranks 2 --device-exchange host) || { host=; }
    if [[ -z $direct || $direct != "$host" || $(state ranks-direct) != $(state ranks-host) ]]; then
      bad=$((bad + 1))
      echo "    $words: other bits by NCCL than through the host"
      lines_of "$logs/run-ranks-direct.log" 3
    fi
  done
  if ((bad == 0)); then
    report ranks PASS "$count meshes of two GPUs have the same bits by NCCL as through the host"
  else
    report ranks FAIL "$bad of $count meshes"
  fi
}

# generated NAME TOKENS DEVICE RECIPE OPTIONS...: the texts that the model of part_generate writes; how long it took is in
# generated-NAME.us.
generated() {
  local out=$logs/generated-$1 tokens=$2 device=$3 recipe=$4 begin end
  shift 4
  begin=$(date +%s%N)
  with_own timeout 60 "$strata" generate --model "$logs/writer" --prompt "The harbour at night" --prompt "A ship" --prompt So \
    --max-new-tokens "$tokens" --temperature 0 --device "$device" --recipe "$recipe" "$@" > "$out" 2> "$out.log" || return 1
  end=$(date +%s%N)
  echo $(((end - begin) / 1000)) > "$out.us"
  tr -d "\0" < "$out"  # which bash would leave out with a warning
}

# The texts of a random model: in fp32 those of the CPU, in bf16 the same for all prompts together and one at a time. The
# rate is that of the tokens after the first one.
part_generate() {
  rm -rf "$logs/writer"
  # shellcheck disable=SC2086
  if ! with_own "$strata" init --data "$text" --out "$logs/writer" --vocab-size 500 --tied off --recipe fp32 \
    ${WRITER:---hidden 1024 --layers 8 --heads 16 --kv-heads 4} > "$logs/init" 2>&1; then
    report generate FAIL "$(tail -n 1 "$logs/init")"
    return
  fi
  local recipe device long short bad=0
  declare -A texts rates
  for recipe in fp32 bf16; do
    for device in cpu cuda; do
      generated "$device-$recipe-1" 1 "$device" "$recipe" > "$logs/first" || bad=$((bad + 1))
      texts[$device-$recipe]=$(generated "$device-$recipe-257" 257 "$device" "$recipe") || bad=$((bad + 1))
      long=$(cat "$logs/generated-$device-$recipe-257.us" 2> /dev/null || echo 0)
      short=$(cat "$logs/generated-$device-$recipe-1.us" 2> /dev/null || echo 0)
      rates[$device-$recipe]=$((long > short ? 768 * 1000000 / (long - short) : 0))
    done
  done
  texts[alone]=$(generated alone 257 cuda bf16 --micro-batch 1) || bad=$((bad + 1))
  if ((bad > 0)); then
    report generate FAIL "$bad of 9 runs end with an error; the last line of each log:"
    tail -q -n 1 "$logs"/generated-*.log | sed 's/^/    /' | sort -u
  elif [[ -z ${texts[cuda-fp32]} || ${texts[cuda-fp32]} != "${texts[cpu-fp32]}" ]]; then
    report generate FAIL "in fp32 the texts are not those of the CPU"
    diff "$logs/generated-cpu-fp32-257" "$logs/generated-cuda-fp32-257" | head -n 6 | sed 's/^/    /'
  elif [[ ${texts[cuda-bf16]} != "${texts[alone]}" ]]; then
    report generate FAIL "in bf16 three prompts together have other texts than one at a time"
  else
    report generate PASS "the CPU's texts in fp32, and the same texts for prompts together and one at a time"
    for recipe in fp32 bf16; do
      echo "    $recipe, 3 texts: ${rates[cpu-$recipe]} tokens/s on the CPU, ${rates[cuda-$recipe]} on the GPU"
    done
  fi
}

# A PyTorch model that computes on the GPU over a store.
part_store() {
  mkdir -p "$logs/store"
  # The library of the store is loaded into PyTorch's process, so its own come last.
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$own_libraries STRATA_LIBRARY=$library PYTHONPATH=$package CUBLAS_WORKSPACE_CONFIG=:4096:8 \
    timeout 120 python3 "$here/store.py" "$logs/store" "$bin" > "$logs/store.log" 2>&1
  local status=$?
  if ((status == 77)); then
    report store SKIP "$(tail -n 1 "$logs/store.log")"
  elif ((status == 0)); then
    report store PASS "$(head -n 1 "$logs/store.log")"
    lines_of <(tail -n +2 "$logs/store.log")
  else
    report store FAIL "exit $status"
    lines_of "$logs/store.log"
  fi
}

part_figures() {
  local subject status
  for subject in link kernels; do
    with_own timeout 60 "$strata" bench "$subject" --device cuda > "$logs/figures-$subject" 2>&1
    status=$?
    if ((status != 0)); then
      report figures FAIL "bench $subject: exit $status (124: not done in a minute): $(tail -n 1 "$logs/figures-$subject")"
      return
    fi
  done
  report figures PASS "below"
  lines_of <(cat "$logs"/figures-{link,kernels}) 70
}

# Products against a plain loop over cuBLASLt, attention against PyTorch's.
part_ops() {
  local status program=$here/gpu_ops_torch.py
  if [[ ! -e $program ]]; then program=$here/../../benchmarks/gpu_ops_torch.py; fi
  timeout 90 python3 "$program" "$strata" --seconds 4 --libraries "$own_libraries" > "$logs/ops" 2>&1
  status=$?
  if ((status == 77)); then
    report ops SKIP "$(tail -n 1 "$logs/ops")"
  elif ((status != 0)); then
    report ops FAIL "exit $status (124: not done in 90 s): $(tail -n 1 "$logs/ops")"
  else
    report ops PASS "$(head -n 1 "$logs/ops"); an op's time, and below it that of its yardsticks"
    grep -B1 -E '^ ' "$logs/ops" | grep -v '^--' | sed 's/^/    /'
  fi
}

# One family of ops after the other, each in its own time, as many as three minutes allow.
# sanitize TOOL FAMILY...: appends to `clean` and `slow`; fails at the first fault, which is reported.
sanitize() {
  local tool=$1 family status options=(--tool "$1" --error-exitcode 9)
  shift
  if [[ $tool == memcheck ]]; then options+=(--report-api-errors no); fi
  for family in "$@"; do
    if ((SECONDS - sanitizer_began > 180 || SECONDS > 560)); then
      slow+=" $family"
      continue
    fi
    STRATA_TEST_PLUGIN=$STRATA_PLUGIN_PATH with_own timeout 40 compute-sanitizer "${options[@]}" "$tests" \
      --gtest_filter="*OnTheDevice*/$family" > "$logs/sanitizer-$tool-$family" 2>&1
    status=$?
    if ((status == 124)); then
      slow+=" $family"
    elif ((status != 0)) || ! grep -q 'PASSED  \] 1 test' "$logs/sanitizer-$tool-$family"; then
      report sanitizer FAIL "$tool, $family: exit $status: $(grep -m 1 -E '=========' "$logs/sanitizer-$tool-$family")"
      return 1
    else
      clean+=" $family"
    fi
  done
}

part_sanitizer() {
  if ! command -v compute-sanitizer > /dev/null; then
    report sanitizer SKIP "compute-sanitizer is not on the PATH"
    return
  fi
  local clean slow text= tool families sanitizer_began=$SECONDS
  # Ops whose threads reduce or share memory over a block, of which twins show no race; then all.
  for tool in racecheck memcheck; do
    clean='' slow=''
    families=(rmsnorm updates loss layernorm widermsnorm widelayernorm embeddings productsbyrow attentionoveracache attention)
    if [[ $tool == memcheck ]]; then families+=(rope glu elementwise orderedsums products lossofparts fusedattention); fi
    sanitize "$tool" "${families[@]}" || return
    if [[ -z $clean ]]; then
      report sanitizer FAIL "$tool: no family of ops was through in its time"
      return
    fi
    text+="${text:+; }$tool finds nothing in$clean${slow:+, not through in their time:$slow}"
  done
  report sanitizer PASS "$text"
}

parts=("$@")
if ((${#parts[@]} == 0)); then parts=(doctor kernels train torch ranks generate store figures ops sanitizer); fi
for part in "${parts[@]}"; do
  if declare -F "part_$part" > /dev/null; then continue; fi
  echo "run.sh: no part $part (doctor kernels train torch ranks generate store figures ops sanitizer)" >&2
  exit 2
done
for part in "${parts[@]}"; do
  if ((SECONDS > 560)); then
    report "$part" SKIP "ten minutes are over (run it alone: run.sh $part)"
    continue
  fi
  "part_$part"
done
echo "$SECONDS s in all"
exit $failed
