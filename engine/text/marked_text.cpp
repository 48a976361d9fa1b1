// SPDX-License-Identifier: Apache-2.0
#include "engine/text/marked_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::text {
namespace {

using Ids = std::vector<int32_t>;

// How many ids end at or before a byte of a text, and the index of the first that begins at or
// behind it; a token across it lies between the two.
struct Border {
  size_t before = 0;
  size_t behind = 0;
};
using Borders = std::vector<Border>;

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

// The borders at these bytes of a text, in their order. Nothing where its ids do not stand for its
// normalized bytes one after another, or where normalizing goes over a border.
std::optional<Borders> count_borders(const Tokenizer& tokenizer, const Ids& ids,
                                     std::string_view text, const std::vector<size_t>& bytes) {
  if (!tokenizer.keeps_bytes()) return std::nullopt;
  const std::string normal = tokenizer.normalized(text);
  std::vector<size_t> ends = {0};  // of the ids, behind the begin of the first
  for (const int32_t id : ids) {
    ends.push_back(ends.back() + static_cast<size_t>(tokenizer.bytes_of(id)));
  }
  if (ends.back() != normal.size()) return std::nullopt;
  Borders borders;
  size_t from = 0;
  std::string joined;
  for (const size_t byte : bytes) {
    joined += tokenizer.normalized(text.substr(from, byte - from));
    from = byte;
    const auto next = std::ranges::upper_bound(ends, joined.size());
    const auto before = static_cast<size_t>(next - ends.begin()) - 1;
    borders.push_back({before, before + (ends[before] < joined.size() ? 1 : 0)});
  }
  joined += tokenizer.normalized(text.substr(from));
  return joined == normal ? std::optional(borders) : std::nullopt;
}

// The same for every tokenizer, in the time that the texts before all borders take.
Borders encode_borders(const Tokenizer& tokenizer, const Ids& ids, std::string_view text,
                       const std::vector<size_t>& bytes, const EncodeOptions& options) {
  constexpr size_t kEncodedBytesMax = size_t{64} << 20;
  Borders borders;
  size_t encoded_bytes = 0;
  for (const size_t byte : bytes) {
    encoded_bytes += byte;
    if (encoded_bytes > kEncodedBytesMax) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("tokenize chat: the chat has too many turns to find them among the "
                              "tokens of its {} bytes, because this tokenizer changes texts (cut "
                              "it into several)",
                              text.size()));
    }
    borders.push_back(border_in(tokenizer, ids, tokenizer.encode(text.substr(0, byte), options)));
  }
  return borders;
}

// The part of a text that begins at `offset` of it and has no added tokens.
void encode_part(const Tokenizer& tokenizer, std::string_view part, size_t offset,
                 std::span<const ByteRange> ranges, const EncodeOptions& options,
                 const TakeMarked& take) {
  const Ids ids = tokenizer.encode(part, options);
  const auto within = [&](size_t byte) {  // the place in the part
    return std::clamp(byte, offset, offset + part.size()) - offset;
  };
  std::vector<size_t> bytes;  // of borders between two bytes of the part
  for (const ByteRange& range : ranges) {
    for (const size_t byte : {within(range.begin), within(range.end)}) {
      if (byte > 0 && byte < part.size()) bytes.push_back(byte);
    }
  }
  std::optional<Borders> inner;
  if (!bytes.empty()) inner = count_borders(tokenizer, ids, part, bytes);
  if (!inner) inner = encode_borders(tokenizer, ids, part, bytes, options);
  auto next = inner->begin();
  const auto border_at = [&](size_t byte) {
    if (byte == 0) return Border{0, 0};
    return byte == part.size() ? Border{ids.size(), ids.size()} : *next++;
  };
  size_t done = 0;  // ids that are handed out
  const auto hand_out = [&](size_t end, bool are_marked) {
    if (end <= done) return;
    const auto at = [&](size_t k) { return ids.begin() + static_cast<std::ptrdiff_t>(k); };
    take(done == 0 && end == ids.size() ? ids : Ids(at(done), at(end)), are_marked);
    done = end;
  };
  for (const ByteRange& range : ranges) {
    const size_t begin = within(range.begin), end = within(range.end);
    if (begin == end) continue;  // it is in another part
    hand_out(border_at(begin).before, false);
    hand_out(border_at(end).behind, true);
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
