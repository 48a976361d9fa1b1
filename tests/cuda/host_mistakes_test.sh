#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each mistake below, seeded into the host code of the CUDA device, is caught by the tests over the fake device.
#
#   host_mistakes_test.sh "COMPILER AND FLAGS" "OBJECTS OF THE PLUGIN" "LIBRARIES" TESTS
#
# A mistake takes a build and a run, so there is one of them unless STRATA_SEEDS is 10 or more (tests/run.sh --long):
# then all. That each can still be seeded is checked always. Prints which check caught each.
set -euo pipefail
STRATA_SEEDS=${STRATA_SEEDS:-1}

read -ra compile <<< "$1"
IFS=' ;' read -ra objects <<< "$2"
read -ra libraries <<< "$3"
tests=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
fake=$root/tests/fake_cuda
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# file | what is there, once | the mistake
mistakes='
queue_cuda|check_op(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), slot.end, 0),|check_op(cudaSuccess,
queue_cuda|cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), slot.end, 0)|cudaStreamWaitEvent(stream_, slot.end, 0)
queue_cuda|cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), slot.end, 0)|cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), slot.begin, 0)
queue_cuda|if (completed() >= count) return;|if (completed() + 1 >= count) return;
queue_cuda|check_op(cudaStreamWaitEvent(stream_, caller_, 0), slot);|
queue_cuda|cudaEventRecord(caller_, static_cast<cudaStream_t>(stream))|cudaEventRecord(caller_, stream_)
queue_cuda|restore_device(before_);|
queue_cuda|cudaEventRecord(slot.end, stream_)|cudaEventRecord(slot.begin, stream_)
queue_cuda|static_cast<size_t>(bytes), cudaMemcpyDefault|static_cast<size_t>(bytes / 2), cudaMemcpyDefault
queue_cuda|static_cast<size_t>(bytes), cudaMemcpyDefault|static_cast<size_t>(bytes + 4096), cudaMemcpyDefault
queue_cuda|if (is_waited_for) check_op(cudaEventSynchronize(slot.end), slot);|
queue_cuda|check_issued(cudaGetLastError(), slot_of(issued_ + 1));|
queue_cuda|shared_.failure.set(std::current_exception());|
device_cuda|check(cudaMemset(data_, 0, size), "clearing of the device'"'"'s memory");|
device_cuda|cudaMemset(data_, 0, size)|cudaMemset(data_, 0, size / 2)
device_cuda|cudaHostRegister(data, static_cast<size_t>(bytes),|cudaHostRegister(data, static_cast<size_t>(bytes / 2),
device_cuda|    cudaHostUnregister(data_);|
device_cuda|if (error == cudaErrorMemoryAllocation) refuse(bytes);|
products|p.accumulate ? 1.0f : 0.0f|0.0f
products|Operation operation(p.b.transposed, p.a.transposed);|Operation operation(p.a.transposed, p.b.transposed);
products|CUBLASLT_REDUCTION_SCHEME_MASK \& ~CUBLASLT_REDUCTION_SCHEME_INPLACE|CUBLASLT_REDUCTION_SCHEME_MASK
products|set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);|
products|set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);|
peers_cuda|config.blocking = 0;|
peers_cuda|static_cast<size_t>(one.bytes)|static_cast<size_t>(one.bytes + 1) / 2
peers_cuda|done = is_done("exchange");|done = true;
peers_cuda|abort();  // part of it|// part of it
nccl_library|nccl.version < kOldestVersion|nccl.version < 20000
fused_attention|% 16 == 0 \&\& stride % 8 == 0|% 16 == 0
fused_attention|reinterpret_cast<uintptr_t>(data) % 16 == 0 \&\& stride|stride
fused_attention|is_aligned(op.dk.data, dk) \&\& |
fused_attention|static_cast<int>(key_.window)|static_cast<int>(key_.window) - 1
fused_attention|options.set_deterministic_algorithm(true);|
fused_attention|.set_diagonal_band_right_bound(0)|.set_diagonal_band_right_bound(1)
fused_attention|rows(key_.kv_heads, v)|rows(key_.kv_heads, k)
fused_attention|if (id == kLse) tensor->set_data_type(fe::DataType_t::FLOAT);|
fused_attention|key.kv_heads = std::min(parts.kv_heads, op.kv_heads - head);|key.kv_heads = parts.kv_heads;
fused_attention|key.batch = std::min(parts.batch, op.batch - batch);|key.batch = parts.batch;
fused_attention|head * (op.heads / op.kv_heads);|head;
fused_attention|(batch * op.heads + query_head) * op.length|(batch * op.heads + head) * op.length
fused_attention| \&\& kernel.workspace_bytes <= workspace.bytes|
fused_attention|fe::detail::set_stream(handle, stream)|CUDNN_STATUS_SUCCESS
fused_attention|if (found != by_key.end()) return found->second;|
fused_attention|result.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED|false
fused_attention|result.get_message().find("NOT_SUPPORTED") != std::string::npos|false
fused_attention|else if (!is_refusal(result))|else if (false)
fused_attention|if (result.is_bad()) cudnn_error(name_of(key), result.get_message());|
fused_attention|const OnDevice scope(index, "cuDNN");|
fused_attention|std::bit_cast<uint32_t>(op.scale)|uint32_t{0x3f000000}
'

# plugin FOLDER FILE: the plugin with FOLDER/FILE.cpp in the place of the tree's.
plugin() {
  "${compile[@]}" -I"$fake" -I"$fake/include" -I"$root" -c "$1/$2.cpp" -o "$1/$2.o"
  local others=()
  for object in "${objects[@]}"; do
    if [[ $object != */"$2".cpp.o ]]; then others+=("$object"); fi
  done
  "${compile[@]}" -shared "$1/$2.o" "${others[@]}" -Wl,--version-script="$fake/fake.map" "${libraries[@]}" \
    -o "$1/libstrata_cuda.so"
}

# is_caught FOLDER: whether a test fails, or the run does not end.
is_caught() {
  ! STRATA_SEEDS=1 STRATA_FAKE_PLUGIN=$1 timeout 120 "$tests" --gtest_brief=1 --gtest_fail_fast > "$1/log" 2>&1
}

mkdir "$work/0"
cp "$root/kernels/cuda/device/queue_cuda.cpp" "$work/0/"
plugin "$work/0" queue_cuda
if is_caught "$work/0"; then
  echo "the code as it is does not pass:"
  tail -n 30 "$work/0/log"
  exit 1
fi

every=20
if ((${STRATA_SEEDS%%.*} >= 10)); then every=1; fi
number=0 count=0 failed=0
while IFS= read -r line; do
  if [[ -z $line ]]; then continue; fi
  number=$((number + 1))
  folder=$work/$number
  mkdir "$folder"
  file=${line%%|*}
  if ! python3 - "$root/kernels/cuda/device/$file.cpp" "$folder/$file.cpp" "$line" << 'PYTHON'; then
import sys
source, to, line = sys.argv[1:]
_, there, mistake = line.replace("\\&", "&").split("|")
text = open(source).read()
if text.count(there) < 1:
    sys.exit(f"not in {source}: {there}")
at = text.index(there)
open(to, "w").write(text[:at] + mistake + text[at + len(there):])
PYTHON
    failed=1
    continue
  fi
  if ((number % every != 0)); then continue; fi
  count=$((count + 1))
  plugin "$folder" "$file"
  if is_caught "$folder"; then
    caught=$(grep -m 1 -oE '^\[  FAILED  \] [A-Za-z/.]+' "$folder/log" || echo "the run does not end in order")
    reason=$(grep -m 1 -oE 'cuda: .*|emulated device: .*' "$folder/log" | cut -c1-110 || true)
    echo "caught by ${caught#*] }: $line${reason:+   <- $reason}"
  else
    echo "NOT CAUGHT: $line"
    failed=1
  fi
done <<< "$mistakes"
echo "$count of $number mistakes"
exit $failed
