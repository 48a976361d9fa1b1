#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that a change moves no number: trains small models with an old and a new `strata` in many configurations and
# compares every loss and gradient norm of metrics.jsonl, the held-out loss, the hash of the state, the exported
# weights, the loss that `strata eval` finds for them and, where there is a tokenizer, what they generate.
# JSON has the shortest digits that give a double back, so equal text is equal bits.
#
#   compare_binaries.sh OLD_STRATA NEW_STRATA [--only REGEX] [--dir DIR] [--without-state]
#
#   --only REGEX   the configurations whose names match
#   --without-state   not the hash of the state, which programs before tensor ranks made otherwise
#   --dir DIR      work there, on a drive and not in memory (default: a new folder in /var/tmp). What differs stays
#
# One line a configuration, then `N passed, N failed`; the exit status is 1 where one failed. A configuration that
# both binaries refuse fails too: then the table is wrong. About 2 minutes on 2 cores.
set -euo pipefail

# Where the old or the new binary wants other words: an expression of sed for its command lines. Each line begins with
# the configuration's name, so that one of them can be changed alone:  new_words='/^threads-io/s/--io threads/--io pool/'
# Stages of a pipeline have the bits of one rank.
readonly old_words='s/--ranks 2 --pipeline-ranks 2( --pipeline-[a-z]+ [a-z0-9]+)*//'
readonly new_words=''

# name | model | how | options
#
# model: a folder of tests/data/model, or one of `init_models` below, which have a tokenizer and learn a text.
# how:   nvme     with --nvme and the least host memory that the binary accepts; the run must read NVMe in its steps
#        drives   in two directories
#        device   with --device emulated and the least device memory that it accepts
#        resume   the checkpoint of step 2 is resumed: the old one's by the old and by the new binary, the new one's
#                 by the new; all end as the run that was not stopped
readonly table='
llama-fp32-memory            | gqa_untied         | -           | --recipe fp32
llama-bf16-memory            | gqa_untied         | -           | --recipe bf16
llama-fp32-nvme              | gqa_untied         | nvme        | --recipe fp32
llama-bf16-device-nvme       | gqa_untied         | device nvme | --recipe bf16
llama-tied-fp32-memory       | mha_tied_llama3    | -           | --recipe fp32
llama-tied-bf16-nvme         | mha_tied_llama3    | nvme        | --recipe bf16
llama-tied-yarn-fp32-device  | yarn_multi_query   | device      | --recipe fp32
llama-tied-yarn-bf16-nvme    | yarn_multi_query   | nvme        | --recipe bf16
llama-biases-fp32-memory     | llama_biases       | -           | --recipe fp32
llama-biases-bf16-nvme       | llama_biases       | nvme        | --recipe bf16
llama-five-heads-bf16-nvme   | five_heads         | nvme        | --recipe bf16
llama-groups-bf16-device     | groups             | device      | --recipe bf16
llama-f16-files-bf16         | float16            | -           | --recipe bf16
llama-f16-files-fp32-nvme    | float16            | nvme        | --recipe fp32
llama-fp8-files-bf16         | fp8                | -           | --recipe bf16
llama-fp8-files-fp32-nvme    | fp8                | nvme        | --recipe fp32
llama-sharded-files-nvme     | sharded_bf16       | nvme        | --recipe bf16
llama-exported-as-fp32       | tinyllama_bf16     | -           | --recipe bf16 --export-dtype fp32
smollm-fp32-device-nvme      | smollm             | device nvme | --recipe fp32
smollm-mha-bf16-nvme         | smollm_mha         | nvme        | --recipe bf16
mistral-fp32-memory          | window             | -           | --recipe fp32
mistral-bf16-memory          | mistral_bf16       | -           | --recipe bf16
mistral-fp32-nvme            | mistral_bf16       | nvme        | --recipe fp32
mistral-bf16-device-nvme     | window             | device nvme | --recipe bf16
qwen2-fp32-memory            | qwen2              | -           | --recipe fp32
qwen2-bf16-memory            | qwen2              | -           | --recipe bf16
qwen2-fp32-nvme              | qwen2_windows      | nvme        | --recipe fp32
qwen2-bf16-device-nvme       | qwen2_windows      | device nvme | --recipe bf16
qwen3-fp32-memory            | qwen3              | -           | --recipe fp32
qwen3-bf16-memory            | qwen3_windows      | -           | --recipe bf16
qwen3-fp32-nvme              | qwen3_windows      | nvme        | --recipe fp32
qwen3-bf16-device-nvme       | qwen3              | device nvme | --recipe bf16
olmo2-fp32-memory            | olmo2              | -           | --recipe fp32
olmo2-bf16-memory            | olmo2_wide         | -           | --recipe bf16
olmo2-fp32-nvme              | olmo2_wide         | nvme        | --recipe fp32
olmo2-bf16-device-nvme       | olmo2              | device nvme | --recipe bf16
gemma2-fp32-memory           | gemma2             | -           | --recipe fp32
gemma2-bf16-memory           | gemma2_untied      | -           | --recipe bf16
gemma2-fp32-nvme             | gemma2_untied      | nvme        | --recipe fp32
gemma2-bf16-device-nvme      | gemma2             | device nvme | --recipe bf16
gemma3-fp32-memory           | gemma3             | -           | --recipe fp32
gemma3-bf16-memory           | gemma3_pattern     | -           | --recipe bf16
gemma3-fp32-nvme             | gemma3_pattern     | nvme        | --recipe fp32
gemma3-bf16-device-nvme      | gemma3             | device nvme | --recipe bf16
gemma3-vision-fp32-nvme      | gemma3_vision      | nvme        | --recipe fp32
gemma3-vision-bf16-memory    | gemma3_vision_bf16 | -           | --recipe bf16
phi3-fp32-memory             | phi3               | -           | --recipe fp32
phi3-bf16-memory             | phi3_long          | -           | --recipe bf16
phi3-fp32-nvme               | phi3_long          | nvme        | --recipe fp32
phi3-bf16-device-nvme        | phi3               | device nvme | --recipe bf16
gpt2-fp32-memory             | gpt2               | -           | --recipe fp32
gpt2-bf16-memory             | gpt2_bare          | -           | --recipe bf16
gpt2-fp32-nvme               | gpt2_bare          | nvme        | --recipe fp32
gpt2-bf16-device-nvme        | gpt2               | device nvme | --recipe bf16

offload-none                 | middle             | -           | --offload none
offload-host-device          | middle             | device      | --offload host
offload-nvme                 | middle             | nvme        | --offload nvme
device-large                 | middle             | -           | --device emulated --device-memory 1GiB
device-fp32-tied             | middle_tied        | device      | --recipe fp32
device-nvme-tied             | middle_tied        | device nvme | --accumulate 2
large-fp32-memory            | large              | -           | --recipe fp32 --sequence-length 130 --micro-batch 2 --accumulate 2
large-bf16-memory            | large              | -           | --sequence-length 130 --micro-batch 2 --accumulate 2
large-bf16-nvme              | large              | nvme        | --sequence-length 130 --micro-batch 2 --accumulate 2
large-bf16-device-nvme       | large              | device nvme | --sequence-length 97 --micro-batch 3

clip-small                   | middle             | -           | --clip 0.05
clip-small-nvme              | middle             | nvme        | --clip 0.05
clip-off                     | middle             | -           | --clip 0
deferred-clip-off            | middle             | -           | --clip 0 --optimizer-mode deferred
deferred-clip-off-nvme       | middle             | nvme        | --clip 0 --optimizer-mode deferred
deferred-clip-nvme-fp32      | middle             | nvme        | --optimizer-mode deferred --recipe fp32
in-backward                  | middle             | -           | --clip 0 --optimizer-mode in-backward
in-backward-nvme             | middle             | nvme        | --clip 0 --optimizer-mode in-backward --accumulate 2
in-backward-nvme-fp32        | middle_tied        | nvme        | --clip 0 --optimizer-mode in-backward --recipe fp32
in-backward-device-nvme      | middle_tied        | device nvme | --clip 0 --optimizer-mode in-backward
adamw-settings               | middle             | nvme        | --betas 0.8,0.95 --eps 1e-6 --weight-decay 0.3 --decay-all on
schedule-linear-warmup       | middle             | nvme        | --schedule linear --warmup-steps 2 --min-lr-ratio 0.1
schedule-constant            | middle             | -           | --schedule constant --warmup-ratio 0.5

activations-keep             | middle             | -           | --activations keep --accumulate 2
activations-keep-nvme        | middle             | nvme        | --activations keep --accumulate 2
activations-recompute        | middle             | -           | --activations recompute --accumulate 2
accumulate-5                 | middle_tied        | -           | --accumulate 5
accumulate-5-nvme            | middle_tied        | nvme        | --accumulate 5
micro-batch-3-accumulate-2   | middle             | nvme        | --micro-batch 3 --accumulate 2
length-1                     | middle             | nvme        | --sequence-length 1
length-31-fp32               | middle             | nvme        | --sequence-length 31 --recipe fp32
length-127                   | middle             | -           | --sequence-length 127
threads-1                    | middle             | nvme        | --threads 1 --sequence-length 65
threads-2                    | middle             | nvme        | --threads 2 --sequence-length 65
threads-3-memory             | middle             | -           | --threads 3 --sequence-length 65
io-uring                     | middle             | nvme        | --io uring
io-threads                   | middle             | nvme        | --io threads
two-drives                   | middle             | nvme drives | --accumulate 2
prefetch-1                   | middle             | nvme        | --prefetch-depth 1 --accumulate 2
prefetch-3                   | middle             | nvme        | --prefetch-depth 3 --accumulate 2

stages-2                     | middle             | -           | --ranks 2 --pipeline-ranks 2 --accumulate 4
stages-2-clip-nvme           | middle             | nvme        | --ranks 2 --pipeline-ranks 2 --accumulate 4 --clip 0.05
stages-2-gpipe-resume        | middle             | nvme resume | --ranks 2 --pipeline-ranks 2 --pipeline-schedule gpipe --accumulate 4
stages-2-tied-nvme           | middle_tied        | nvme        | --ranks 2 --pipeline-ranks 2 --accumulate 4
stages-2-tied-in-backward    | middle_tied        | nvme        | --ranks 2 --pipeline-ranks 2 --accumulate 2 --clip 0 --optimizer-mode in-backward
stages-2-chunks-2-resume     | middle             | nvme resume | --ranks 2 --pipeline-ranks 2 --pipeline-chunks 2 --accumulate 4
stages-2-device              | middle             | device      | --ranks 2 --pipeline-ranks 2 --accumulate 2

ranks-2-zero-0               | middle             | -           | --ranks 2 --zero-stage 0
ranks-2-zero-1               | middle             | -           | --ranks 2 --zero-stage 1
ranks-2-zero-2               | middle             | -           | --ranks 2 --zero-stage 2
ranks-2-zero-3               | middle             | -           | --ranks 2 --zero-stage 3
ranks-2-zero-0-nvme          | middle             | nvme        | --ranks 2 --zero-stage 0 --recipe fp32
ranks-2-zero-1-nvme          | middle             | nvme        | --ranks 2 --zero-stage 1
ranks-2-zero-2-nvme          | middle_tied        | nvme        | --ranks 2 --zero-stage 2
ranks-2-zero-3-nvme          | middle             | nvme        | --ranks 2 --zero-stage 3 --accumulate 2
ranks-2-zero-3-fp32-nvme     | middle_tied        | nvme        | --ranks 2 --zero-stage 3 --recipe fp32
ranks-2-zero-3-device-nvme   | middle             | device nvme | --ranks 2 --zero-stage 3
ranks-2-zero-3-in-backward   | middle             | nvme        | --ranks 2 --zero-stage 3 --clip 0 --optimizer-mode in-backward
ranks-4-zero-0               | middle             | -           | --ranks 4 --zero-stage 0
ranks-4-zero-1               | middle             | -           | --ranks 4 --zero-stage 1 --recipe fp32
ranks-4-zero-2               | middle_tied        | -           | --ranks 4 --zero-stage 2
ranks-4-zero-3               | middle             | -           | --ranks 4 --zero-stage 3
ranks-4-zero-3-nvme          | middle_tied        | nvme        | --ranks 4 --zero-stage 3
ranks-2-freeze-nvme          | middle             | nvme        | --ranks 2 --freeze .*(embed|layers.[01]\.).*

freeze-embedding             | middle             | -           | --freeze .*embed.*
freeze-embedding-nvme        | middle             | nvme        | --freeze .*embed.*
freeze-lower-layers-nvme     | middle             | nvme        | --freeze .*(embed|layers.[012]\.).* --recipe fp32
freeze-norms-device-nvme     | middle_tied        | device nvme | --freeze .*norm.*
freeze-attention-in-backward | middle             | nvme        | --freeze .*self_attn.* --clip 0 --optimizer-mode in-backward
freeze-all-but-head-nvme     | middle             | nvme        | --freeze .*(embed|layers).*
freeze-tied-embedding-nvme   | middle_tied        | nvme        | --freeze .*embed.*
groups                       | middle             | -           | --config groups.toml
groups-nvme                  | middle             | nvme        | --config groups.toml --recipe fp32
groups-device-nvme           | middle_tied        | device nvme | --config groups.toml
groups-ranks-2               | middle             | nvme        | --config groups.toml --ranks 2 --zero-stage 3

resume-memory                | middle             | resume      | --recipe fp32
resume-nvme                  | middle             | nvme resume | --accumulate 2
resume-nvme-fp32             | middle_tied        | nvme resume | --recipe fp32
resume-in-backward           | middle             | nvme resume | --clip 0 --optimizer-mode in-backward
resume-device-nvme           | middle             | device nvme resume | --recipe bf16
resume-ranks-2-zero-1        | middle             | resume      | --ranks 2 --zero-stage 1
resume-ranks-2-zero-3-nvme   | middle             | nvme resume | --ranks 2 --zero-stage 3
resume-ranks-4-zero-2        | middle             | resume      | --ranks 4 --zero-stage 2
resume-freeze-nvme           | middle             | nvme resume | --freeze .*(embed|layers.[01]\.).*
resume-groups-nvme           | middle_tied        | nvme resume | --config groups.toml
resume-gpt2-nvme             | gpt2               | nvme resume | --recipe bf16
resume-gemma3-vision         | gemma3_vision      | nvme resume | --recipe bf16

data-json-lines              | middle             | nvme        | --data records.jsonl
data-in-order                | middle             | -           | --shuffle off --seed 9
data-other-seed              | middle_tied        | nvme        | --seed 9
'

# name | options of `strata init`
readonly init_models='
middle      | --vocab-size 300 --hidden 48 --layers 4 --heads 6 --kv-heads 2 --feed-forward 80 --tied off
middle_tied | --vocab-size 300 --hidden 40 --layers 3 --heads 4 --kv-heads 4 --feed-forward 72 --tied on --seed 3
large       | --vocab-size 500 --hidden 192 --layers 5 --heads 6 --kv-heads 3 --feed-forward 448 --tied off --seed 5
'

# Options that `strata plan` does not know.
readonly train_only='(eval-every|export-dtype|seed|shuffle)'

usage() {
  echo "usage: compare_binaries.sh OLD_STRATA NEW_STRATA [--only REGEX] [--dir DIR] [--without-state]" >&2
  exit 2
}

[[ $# -ge 2 ]] || usage
old=$(realpath -- "$1")
new=$(realpath -- "$2")
shift 2
only=.
dir=
scratch=false
has_state=true
while (($# > 0)); do
  case $1 in
    --without-state)
      has_state=false
      shift
      continue
      ;;
    --only) only=${2:?$(usage)} ;;
    --dir) dir=${2:?$(usage)} ;;
    *) usage ;;
  esac
  shift 2
done
for binary in "$old" "$new"; do
  [[ -x $binary ]] || { echo "compare_binaries.sh: $binary: not a program" >&2; exit 2; }
done

root=$(cd "$(dirname "$0")/../.." && pwd)
if [[ -z $dir ]]; then
  dir=$(mktemp -d /var/tmp/strata-equality-XXXXXX)
  scratch=true
fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cd "$dir"
if [[ -n $(ls) ]]; then
  echo "compare_binaries.sh: $dir: holds something already (give --dir a new folder)" >&2
  exit 2
fi

# strata SIDE NAME WORDS: runs one of the binaries with its words of the command line, for two minutes at most. SIDE is
# `old` or `new`, or who made the checkpoint and who goes on with it: `old-new`.
strata() {
  local name=$2 binary=$old edit=$old_words words
  if [[ $1 == *new ]]; then binary=$new edit=$new_words; fi
  shift 2
  read -ra words <<< "$(sed -E "$edit" <<< "$name $*" | cut -d ' ' -f 2-)"
  timeout -s KILL 120 "$binary" "${words[@]}" && return
  if (($? == 137)); then echo "killed, or no answer in two minutes" >&2; fi
  return 1
}

# with FLAG WORDS: the flag with its value as it stands there, or nothing.
with() {
  local flag=$1
  shift
  grep -oE -- "--$flag [^ ]+" <<< "$*" || true
}

# least SIDE NAME FLAG WORDS: the least size for that flag with which the plan fits, in steps of 16 KiB up to 256 MiB.
# What was found for another binary is tried first.
least() {
  local side=$1 name=$2 flag=$3 low=0 high=16384 guess=$2/least-$3 words
  shift 3
  words=$(sed -E "s/--$train_only [^ ]+//g" <<< "plan --json $*")
  fits() { strata "$side" "$name" "$words --$flag $((16 * $1))KiB" > /dev/null; }
  narrow() { if fits "$1" 2> /dev/null; then high=$1; else low=$1; fi; }
  fits "$high" || return 1
  if [[ -e $guess ]]; then
    narrow "$(< "$guess")"
    narrow "$((high - 1))"
  fi
  while ((high - low > 1)); do narrow $(((low + high) / 2)); done
  echo "$high" > "$guess"
  echo "--$flag $((16 * high))KiB"
}

# json_value NAME FILE: the first value of that name.
json_value() { grep -m 1 -oE "\"$1\": [^,}]*" "$2" | sed 's/.*: //'; }

# numbers SIDE NAME OUT WORDS: what is compared of the run in OUT, one number a line.
numbers() {
  local side=$1 name=$2 out=$3 seen
  shift 3
  seen="--model $out/model --json --host-memory 1GiB $(with sequence-length "$@") $(with recipe "$@")"
  grep -v eval_loss "$out/metrics.jsonl" | grep -oE '"(step|loss|grad_norm)": [^,}]*' |
    awk -F ': ' '$1 == "\"step\"" { step = $2; next } { print "step " step " " $1 ": " $2 }' |
    tr -d '"'
  echo "held-out loss: $(json_value held_out_loss "$out.json")"
  if $has_state; then echo "state: $(json_value state_hash "$out.json" | tr -d '"')"; fi
  (cd "$out/model" && sha256sum model*.safetensors) || return 1
  strata "$side" "$name" "eval $seen $(with data "$@")" > "$out.eval" || return 1
  echo "loss of the exported model: $(json_value loss "$out.eval")"
  if [[ ! -e $out/model/tokenizer.json ]]; then return; fi
  # Older programs do not say where a text ends.
  strata "$side" "$name" "generate $seen --prompt The --temperature 0 --max-new-tokens 6" | sed 's/, "end": "[a-z]*"//'
}

# run SIDE NAME HOW WORDS: trains in NAME/SIDE, going on with what is there, and leaves the numbers in
# NAME/SIDE.numbers. False where something fails; standard error says what.
run() {
  local side=$1 name=$2 how=$3 out=$2/$1 size words drives
  shift 3
  words=$*
  drives=$out.scratch
  if [[ $how == *drives* ]]; then drives+=,$out.scratch/second; fi
  mkdir -p "$out.scratch/second"
  if [[ $how == *device* ]]; then
    words+=" --device emulated --nvme $drives"
    size=$(least "$side" "$name" device-memory "$words") || return 1
    words+=" $size"
  fi
  if [[ $how != *nvme* ]]; then
    words+=" --host-memory 512MiB"
  else
    if [[ $how != *device* ]]; then words+=" --nvme $drives"; fi
    size=$(least "$side" "$name" host-memory "$words") || return 1
    words+=" $size"
  fi
  if [[ -e $out ]]; then words+=" --resume"; fi
  strata "$side" "$name" "train --json --out $out $words" > "$out.json" || return 1
  if [[ $how == *nvme* && $(json_value step_read_bytes "$out.json") == 0 ]]; then
    echo "nothing was read from NVMe" >&2
    return 1
  fi
  numbers "$side" "$name" "$out" "$words" > "$out.numbers" || return 1
  # Losses and norms of four steps with all their digits, and nothing empty.
  if (($(grep -cE '^step [1-4] .*: [0-9]+\.[0-9]{9,}' "$out.numbers") < 8)) ||
    grep -qE ': (null)?$' "$out.numbers"; then
    echo "numbers are missing in $out.numbers" >&2
    return 1
  fi
}

# difference FILE FILE: the first line that differs, and how many do.
difference() {
  local changed
  changed=$(diff "$1" "$2" | grep -c '^>')
  echo "$(diff "$1" "$2" | grep -m 1 '^<' | cut -c 3-) became" \
    "$(diff "$1" "$2" | grep -m 1 '^>' | sed 's/.*: //; s/^> //'); $changed of $(wc -l < "$2") lines"
}

# verdict NAME HOW WORDS: runs all that the configuration asks for, and says what came of it.
verdict() {
  local name=$1 how=$2 words=$3 side old_ran=true new_ran=true sides=''
  run old "$name" "$how" "$words" 2> "$name/old.errors" || old_ran=false
  run new "$name" "$how" "$words" 2> "$name/new.errors" || new_ran=false
  if ! $old_ran && ! $new_ran; then
    echo "refused by both, so the table is wrong: old: $(tail -n 1 "$name/old.errors"); new: $(tail -n 1 "$name/new.errors")"
    return 1
  fi
  if ! $old_ran; then echo "refused by the old one: $(tail -n 1 "$name/old.errors")"; return 1; fi
  if ! $new_ran; then echo "refused by the new one: $(tail -n 1 "$name/new.errors")"; return 1; fi
  if ! cmp -s "$name/old.numbers" "$name/new.numbers"; then
    echo "DIFFERS: $(difference "$name/old.numbers" "$name/new.numbers")"
    return 1
  fi
  if [[ $how != *resume* ]]; then echo "equal"; return; fi
  for side in old-old old-new new-new; do
    # As a run that died after step 2.
    cp -r "$name/${side%-*}" "$name/$side"
    rm -r "$name/$side/model" "$name/$side/checkpoints/step-000004"
    if ! run "$side" "$name" "$how" "$words" 2> "$name/$side.errors"; then
      echo "resumed $side: refused: $(tail -n 1 "$name/$side.errors")"
      return 1
    fi
    if ! cmp -s "$name/old.numbers" "$name/$side.numbers"; then
      echo "resumed $side: DIFFERS: $(difference "$name/old.numbers" "$name/$side.numbers")"
      return 1
    fi
  done
  echo "equal, resumed too"
}

# compare NAME MODEL HOW OPTIONS: prints the configuration's line and keeps what differs.
compare() {
  local name=$1 how=$3 words=$4 default said model=$root/tests/data/model/$2 data=tokens.bin
  mkdir "$name"
  if [[ -e models/$2 ]]; then model=models/$2 data=text.txt; fi
  for default in "--data $data" "--steps 4" "--sequence-length 16" "--lr 0.01" "--eval-every 3"; do
    if [[ " $words" != *" ${default% *} "* ]]; then words+=" $default"; fi
  done
  if [[ $how == *resume* ]]; then words+=" --checkpoint-every 2"; fi
  words+=" --model $model --machine machine.toml"
  if said=$(verdict "$name" "$how" "$words"); then
    rm -r "$name"
    : > "passed/$name"
  else
    said+=" ($dir/$name)"
  fi
  printf '%-29s %s\n' "$name" "$said"
}

# What the configurations read; the old binary makes the models.
cp "$root/tests/data/cli/harbour.txt" text.txt
perl -e 'my $x = 1; print pack "v*", map { $x = ($x * 1103515245 + 12345) % 2147483648; ($x >> 16) % 53 } 1 .. 6000' \
  > tokens.bin
perl -e 'while (<>) { print qq({"prompt": "$1", "completion": "$2"}\n) if /^([A-Za-z ,]{8,}?) ([A-Za-z ,.]+)$/ }' \
  text.txt > records.jsonl
# With a device for each rank, so that `plan` counts the memory of all ranks, as `train` does.
# Older programs know neither nvme_count nor nvme_bytes.
sed -e 's/^cores/device_count = 4\n&/' -e '/^nvme_count/d' -e '/^nvme_bytes/d' "$root/examples/machines/small-2core.toml" > machine.toml
cat > groups.toml << 'END'
[[group]]
match = ".*embed.*"
lr_factor = 0.1
weight_decay = 0.0

[[group]]
match = ".*layers\\.1\\..*"
frozen = true

[[group]]
match = ".*(gate|up|down).*"
lr_factor = 2.0
END
mkdir models passed
while IFS='|' read -r name options; do
  if [[ -n ${name// /} ]]; then
    strata old init "init --data text.txt --out models/${name// /} $options" > /dev/null
  fi
done <<< "$init_models"

rows=0
while IFS='|' read -r name model how options; do
  name=${name// /}
  if [[ -z $name || ! $name =~ $only ]]; then continue; fi
  while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
  rows=$((rows + 1))
  compare "$name" "${model// /}" "$how" "${options# }" &
done <<< "$table"
wait

passed=$(ls passed | wc -l)
failed=$((rows - passed))
if $scratch && ((failed == 0)); then rm -r "$dir"; fi
echo "$passed passed, $failed failed"
((passed > 0 && failed == 0))
