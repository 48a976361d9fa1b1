// SPDX-License-Identifier: Apache-2.0
#include "engine/data/document_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::data {

void DocumentWriter::begin_chat() {
  start_ = tokens_.count();
}

void DocumentWriter::begin(bool prefix_is_target) {
  begin_chat();
  append(tokenizer_.prefix_ids(), prefix_is_target);
}

void DocumentWriter::add(const std::vector<int32_t>& ids, bool are_targets) {
  append(ids, are_targets);
  if (!keeps_records()) tokens_.settle();  // nothing is taken back
  require_room();
}

void DocumentWriter::append(const std::vector<int32_t>& ids, bool are_targets) {
  if (!are_targets || options_.learns_end || !end_id_) return tokens_.append(ids, are_targets);
  for (auto at = ids.begin(); at != ids.end();) {
    const bool is_end = *at == *end_id_;
    const auto next =
        std::find_if(at, ids.end(), [&](int32_t id) { return (id == *end_id_) != is_end; });
    tokens_.append({at, next}, !is_end);
    at = next;
  }
}

bool DocumentWriter::end() {
  append(tokenizer_.suffix_ids(), true);
  if (end_id_ && !tokenizer_.appends(*end_id_)) append({*end_id_}, true);
  return finish();
}

bool DocumentWriter::end_chat() {
  return finish();
}

bool DocumentWriter::finish() {
  const bool is_kept = keep();
  tokens_.settle();
  return is_kept;
}

bool DocumentWriter::keep() {
  const int64_t end = tokens_.count();
  if (!keeps_records()) {
    split_count_ += end - start_ > 1 && start_ / options_.length != (end - 2) / options_.length;
    return true;
  }
  const int64_t last = std::min(end, start_ + options_.length + 1);
  if (last - start_ < 2 || tokens_.target_count(start_ + 1, last - start_ - 1) == 0) {
    tokens_.truncate(start_);
    return false;
  }
  starts_->push_back(start_);
  if (last == end) return true;
  ++cut_count_;
  cut_tokens_ += end - last;
  tokens_.truncate(last);
  return true;
}

void DocumentWriter::require_room() const {
  if (options_.room_bytes == 0) return;
  const int64_t starts_bytes = keeps_records() ? starts_->bytes() : 0;
  if (tokens_.bytes() + starts_bytes <= options_.room_bytes) return;
  throw Error(ErrorCode::kDoesNotFit,
              fmt::format("read data: {}: its tokens take more than the {} that --host-memory "
                          "leaves beside the program (raise --host-memory, or give the data as a "
                          "token file, which is not held in memory)",
                          tokens_.name(), format_bytes(options_.room_bytes)));
}

}  // namespace strata::data
