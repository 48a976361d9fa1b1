// SPDX-License-Identifier: Apache-2.0
#include "engine/text/marked_text.h"

#include <algorithm>
#include <optional>

#include "engine/base/check.h"

namespace strata::text {
namespace {

using Ids = std::vector<int32_t>;

// How many ids end at or before a byte of a text, and the index of the first that begins at or
// behind it; a token across it lies between the two.
struct Border {
  size_t before = 0;
  size_t behind = 0;
};

// The number of bytes up to the end of each id, or nothing where the ids do not stand for the bytes
// of the text one after another.
std::vector<size_t> ends_of(const Tokenizer& tokenizer, const Ids& ids, std::string_view text) {
  if (!tokenizer.keeps_bytes(text)) return {};
  std::vector<size_t> ends;
  ends.reserve(ids.size());
  size_t end = 0;
  for (const int32_t id : ids) {
    end += static_cast<size_t>(tokenizer.bytes_of(id));
    ends.push_back(end);
  }
  return end == text.size() ? ends : std::vector<size_t>();
}

Border border_in(const std::vector<size_t>& ends, size_t byte) {
  const auto before = static_cast<size_t>(std::ranges::upper_bound(ends, byte) - ends.begin());
  const size_t begin = before == 0 ? 0 : ends[before - 1];
  return {before, before + (begin < byte ? 1 : 0)};
}

// `ids` are those of a text, and `first` those of its first bytes alone. Where these are not the
// first ids of the text, a token lies across the border or cuts the text before it another way.
Border border_in(const Tokenizer& tokenizer, const Ids& ids, const Ids& first) {
  const auto [place, other] = std::ranges::mismatch(ids, first);
  auto at = static_cast<size_t>(place - ids.begin());
  int64_t left_bytes = 0;  // between the common ids and the border
  for (auto id = other; id != first.end(); ++id) left_bytes += tokenizer.bytes_of(*id);
  for (; at < ids.size() && tokenizer.bytes_of(ids[at]) <= left_bytes; ++at) {
    left_bytes -= tokenizer.bytes_of(ids[at]);
  }
  return {at, at + (left_bytes > 0 && at < ids.size() ? 1 : 0)};
}

// The part of a text that begins at `offset` of it and has no added tokens.
void encode_part(const Tokenizer& tokenizer, std::string_view part, size_t offset,
                 std::span<const ByteRange> ranges, const EncodeOptions& options,
                 const TakeMarked& take) {
  const Ids ids = tokenizer.encode(part, options);
  size_t done = 0;  // ids that are handed out
  const auto hand_out = [&](size_t end, bool are_marked) {
    if (end <= done) return;
    const auto at = [&](size_t k) { return ids.begin() + static_cast<std::ptrdiff_t>(k); };
    take(done == 0 && end == ids.size() ? ids : Ids(at(done), at(end)), are_marked);
    done = end;
  };
  std::optional<std::vector<size_t>> ends;
  const auto border_at = [&](size_t byte) {
    if (byte <= offset) return Border{0, 0};
    if (byte >= offset + part.size()) return Border{ids.size(), ids.size()};
    if (!ends) ends = ends_of(tokenizer, ids, part);
    if (!ends->empty()) return border_in(*ends, byte - offset);
    return border_in(tokenizer, ids, tokenizer.encode(part.substr(0, byte - offset), options));
  };
  for (const ByteRange& range : ranges) {
    if (range.end <= offset || range.begin >= offset + part.size()) continue;
    hand_out(border_at(range.begin).before, false);
    hand_out(border_at(range.end).behind, true);
  }
  hand_out(ids.size(), false);
}

}  // namespace

void encode_marked(const Tokenizer& tokenizer, std::string_view text,
                   std::span<const ByteRange> ranges, EncodeOptions options,
                   const TakeMarked& take) {
  STRATA_CHECK(!options.add_special);
  size_t offset = 0;
  tokenizer.split_at_tokens(text, [&](std::string_view part, int32_t id) {
    if (id < 0) {
      encode_part(tokenizer, part, offset, ranges, options, take);
    } else {
      const auto is_touched = [&](const ByteRange& range) {
        return range.begin < offset + part.size() && range.end > offset;
      };
      take({id}, std::ranges::any_of(ranges, is_touched));
    }
    offset += part.size();
    options.is_behind_token = true;
  });
}

}  // namespace strata::text
