#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each mistake below, seeded into the kernels of the CUDA device, is caught by the comparison of their host
# twins with the plain loops (cuda_kernels_test.cpp).
#
#   cuda_mistakes_test.sh "COMPILER AND FLAGS" "LIBRARIES"
#
# A mistake takes a build, so one of them is built unless STRATA_SEEDS is 10 or more (tests/run.sh --long): then all.
# That each can still be seeded is checked always.
set -euo pipefail
STRATA_SEEDS=${STRATA_SEEDS:-1}

read -ra compile <<< "$1"
read -ra libraries <<< "$2"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# file | what is there, once | the mistake
mistakes='
norm.h|factor * (g.at[i] - n.at[i] * mean)|factor * (g.at[i] - n.at[i] * dot)
norm.h|value.at[i] *= factor * (offset + weight.at[i])|value.at[i] *= factor * weight.at[i]
norm.h|if (own != nullptr) {|if (own == nullptr) {
norm.h|at / count * stride|at % count * stride
norm.h|rows < first + kShareRows ? rows : first + kShareRows|first + kShareRows - 1
norm.h|factor, sum[j]);|factor, sum[0]);
column_sums.h|row + j < end) loaded[j]|row + j < end - 1) loaded[j]
column_sums.h|if (row + j < end) term.add(loaded[j], sum);|term.add(loaded[j], sum);
layer_norm.h|for (int i = 0; i < kPack && col + i < cols; ++i) sum += term(value.at[i]);|for (int i = 0; i < kPack; ++i) sum += term(value.at[i]);
launch.h|col += step|col += step + kPack
launch.h|body(col, load_(col)); }, kPacks);|body(col, load_(col)); }, 0);
element.h|static uint16_t store(float value) { return nearest_bf16(value); }|static uint16_t store(float value) { return to_bf16(value); }
element.h|if (kWhole \|\| i < left) pack.at[i] = data[i];|if (kWhole \|\| i < left - 1) pack.at[i] = data[i];
embedding.h|r < row ? kEarlier|r + 1 < row ? kEarlier
embedding.h|(found >> i & 1) != 0|(found >> i & 1) != 0 && i < 2
launch.h|block.scratch[thread] = term(begin + thread)|block.scratch[thread] = term(thread)
embedding.h|token == ignored \|\| own < 0|own < 0
optimizer.h|exact_mul(exact_mul(g, s.one_minus_beta2), g)|exact_mul(exact_mul(g, g), s.one_minus_beta2)
optimizer.h|exp_avg.at[i] = canonical(m);|exp_avg.at[i] = m;
optimizer.h|for (int width = kSquaresLanes / 2; width >= 1; width /= 2)|for (int width = 1; width < kSquaresLanes; width *= 2)
optimizer.h|const int64_t at = places[j].begin + from, left = places[j].end - at;|const int64_t at = places[j].begin + from, left = kPack;
optimizer.h|from < longest; from += kSquaresTile|from < kSquaresTile; from += kSquaresTile
optimizer.h|sum - sum == 0.0 ? 0.0 : 1.0|sum == sum ? 0.0 : 1.0
glu.h|x < -16.0f ? -16.0f : x > 16.0f ? 16.0f : x|x
glu.h|inverse ? -sin[angles + i] : sin[angles + i]|sin[angles + i]
column_sums.h|accumulate ? sum[col + thread] : 0.0f|0.0f
cross_entropy.h|first ? 0.0 : *sum|0.0
cross_entropy.h|const float hit = col + i == target ? 1.0f : 0.0f;|const float hit = col == target ? 1.0f : 0.0f;
cross_entropy.h|targets[row] - first;|targets[row];
cross_entropy.h| * std::exp(double{of(rank, row)[0]} - most);|;
matmul.h|.accumulate = op.accumulate \|\| op.bias != nullptr|.accumulate = op.accumulate
row_product.h|row + r < rows ? row + r : rows - 1|row < rows ? row : rows - 1
row_product.h|if (bias != nullptr) value +=|if (bias != nullptr) value =
row_product.h|wide ? add_to<F32>(at, value) : add_to<X>(at, value)|add_to<X>(at, value)
cached_attention.h|position[token] - window + 1|position[token] - window
cached_attention.h|while (tile >= layout.tiles) tile -= layout.tiles;|
cached_attention.h|for (int i = thread / width; i < part.count; i += sharing)|for (int i = 0; i < part.count; i += sharing)
cached_attention.h|const int64_t kv = head / (heads / layout.kv_heads)|const int64_t kv = head % layout.kv_heads
cached_attention.h|result[0] = expf(result[0] - largest);|result[0] = 1.0f;
cached_attention.h|for (int from = thread; from < sharing * width; from += width)|for (int from = thread; from < width; from += width)
attention_rows.h|row - window + 1 > key) key = row - window + 1|row - window > key) key = row - window
attention_rows.h|(dp[at] - delta)|dp[at]
attention.h|.accumulate = true,|
element.h|static uint16_t store(float value) { return to_f16(value); }|static uint16_t store(float value) { return to_bf16(value); }
element.h|return from_f16(stored);|return from_bf16(stored);
optimizer.h|hi.at[i] = to_f16(master.at[i])|hi.at[i] = to_bf16(master.at[i])
elementwise.h|if (k < sources) value[k] =|if (k < sources - 1) value[k] =
elementwise.h|sum.at[i] = exact_add(sum.at[i], From::load(value[k].at[i]));|sum.at[i] = exact_add(sum.at[i], From::load(value[sources - k].at[i]));
elementwise.h|sum.at[i] = canonical(sum.at[i]);|;
matmul.h|load_four<X, kWhole>(x + row * stride + col|load_four<Weight16, kWhole>(x + row * stride + col
'

# object FOLDER SOURCE FLAGS...: compiles with the kernels of FOLDER before those of the tree.
object() {
  "${compile[@]}" -I"$1" -I"$root" "${@:3}" -c "$root/$2" -o "$1/$(basename "$2").o"
}

# is_caught FOLDER [FILE]: whether the comparison is built and fails with the twins of FOLDER. Norms of many rows take long,
# and are compared where the mistake is in theirs.
is_caught() {
  local filter=-CudaNormsOfManyRows*
  if [[ ${2:-norm.h} == norm.h ]]; then filter=*; fi
  object "$1" kernels/cuda/twin/backend_twin.cpp &&
    "${compile[@]}" "$1/backend_twin.cpp.o" "$work/cuda_kernels_test.cpp.o" "${libraries[@]}" -o "$1/test" &&
    ! timeout 300 "$1/test" --gtest_filter="$filter" --gtest_brief=1 --gtest_fail_fast > "$1/log" 2>&1
}

object "$work" tests/kernels/cuda_kernels_test.cpp
every=40
if ((${STRATA_SEEDS%%.*} >= 10)); then
  every=1
  mkdir -p "$work/0/kernels/cuda"
  cp -r "$root/kernels/cuda/ops" "$work/0/kernels/cuda/"
  if is_caught "$work/0"; then
    echo "the kernels as they are do not pass:"
    tail -n 30 "$work/0/log"
    exit 1
  fi
fi

number=0
count=0
failed=0
unseeded=0
while IFS= read -r line; do
  if [[ -z $line ]]; then continue; fi
  number=$((number + 1))
  folder=$work/seeded
  mkdir -p "$folder/kernels/cuda"
  cp -r "$root/kernels/cuda/ops" "$folder/kernels/cuda/"
  if ! perl - "$folder/kernels/cuda/ops" "$line" << 'PERL'; then
my ($folder, $line) = @ARGV;
my ($name, $old, $new) = map { s/\\\|/|/gr } split(/(?<!\\)\|/, $line, 3);
local $/;
open(my $file, '<', "$folder/$name") or die "$name: $!\n";
my $text = <$file>;
my $count = () = $text =~ /\Q$old\E/g;
die "$name has $count times: $old\n" if $count != 1;
$text =~ s/\Q$old\E/$new/;
open($file, '>', "$folder/$name") or die "$name: $!\n";
print $file $text;
PERL
    unseeded=$((unseeded + 1))
  elif ((number % every == 0)); then
    count=$((count + 1))
    if ! is_caught "$folder" "${line%%|*}"; then
      echo "not caught: $line"
      failed=$((failed + 1))
    fi
  fi
  rm -rf "$folder"
done <<< "$mistakes"
echo "$((count - failed)) of $count seeded mistakes were caught, $((number - unseeded)) of $number can be seeded"
((failed == 0 && unseeded == 0 && count == number / every))
