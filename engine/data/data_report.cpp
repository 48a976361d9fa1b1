// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/text/text_unicode.h"
#include "engine/text/tokenizer.h"

namespace strata::data {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kLabel = 9;
constexpr std::string_view kCut = " ... ";

std::string share_text(int64_t part, int64_t all) {
  return fmt::format("{:.0f}%", 100 * static_cast<double>(part) / static_cast<double>(all));
}

// Breaks a text into lines at spaces, with the label before the first.
class Report {
 public:
  void add(std::string_view label, std::string_view text) {
    while (!text.empty()) {
      size_t at = text.size();
      if (at > kColumns - kLabel) {
        at = text.substr(0, kColumns - kLabel + 1).rfind(' ');
        if (at == std::string_view::npos || at == 0) at = std::min(text.find(' '), text.size());
      }
      line(label, text.substr(0, at));
      text.remove_prefix(std::min(text.size(), at + 1));
      label = "";
    }
  }
  void line(std::string_view label, std::string_view text) {
    fmt::format_to(std::back_inserter(text_), "{}{:<{}}{}", text_.empty() ? "" : "\n", label,
                   kLabel, text);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string amount_text(const std::vector<ReportPart>& parts, const TokenSource& train,
                        const TokenSource& held_out) {
  int64_t tokens = 0;
  int64_t targets = 0;
  for (const ReportPart& part : parts) {
    tokens += part.data->tokens->count();
    targets += part.data->target_count;
  }
  std::string text = counted(tokens, "token");
  const bool is_mixture = !train.parts().empty() && train.parts().front().weight > 0;
  if (targets < tokens && !is_mixture) {  // which draws from its parts by weight
    text += fmt::format(", {} of them learned ({})", targets, share_text(targets, tokens));
  }
  text += fmt::format("; {} of {}", counted(train.sample_count(), "sample"), train.length());
  if (held_out.sample_count() > 0) {
    text += fmt::format(", {} more held out", held_out.sample_count());
  }
  return text;
}

// What becomes of records at the ends of samples; empty without records.
std::string cut_text(const std::vector<ReportPart>& parts, const TokenSource& train) {
  int64_t records = 0, split = 0, cut = 0, lost = 0, kept = 0, documents = 0, samples = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const ReportPart& part = parts[k];
    const auto starts = part.data->starts ? part.data->starts->size() : 0;
    documents += starts;
    samples += train.parts()[k].packing ? train.parts()[k].packing->row_count() : starts;
    records += part.data->record_count;
    split += part.data->split_count;
    cut += part.data->cut_count;
    lost += part.data->cut_tokens;
    kept += part.data->starts ? part.data->tokens->count() : 0;
  }
  if (records == 0) return "";
  if (kept == 0) {
    return fmt::format(
        "records share samples, and {} {} on in the next one (--samples packed keeps them whole "
        "and apart)",
        split == 0 ? "none" : fmt::format("{} of {}", split, records), split > 1 ? "go" : "goes");
  }
  // The last token of a record is a target only.
  const bool is_packed = !train.parts().empty() && train.parts().front().packing != nullptr;
  const int64_t room = samples * train.length();  // with what is held out of these data
  const int64_t used = kept - documents;
  const char* kept_one = documents > records ? "text" : "record";  // answers of a chat are several
  const std::string padding = fmt::format(
      "{}; {} of {} is padding",
      !is_packed ? fmt::format("each {} is a sample", kept_one)
      : documents == samples
          ? fmt::format("{} in {}", counted(documents, kept_one), counted(samples, "sample"))
          : fmt::format("{} share {} without seeing each other", counted(documents, kept_one),
                        counted(samples, "sample")),
      share_text(std::max<int64_t>(0, room - used), room), samples == 1 ? "it" : "them");
  if (cut == 0) return padding + "; no sample is cut";
  return fmt::format("{}; {} {} cut, which loses {} of {} tokens (raise --sequence-length)",
                     padding, counted(cut, kept_one), cut == 1 ? "is" : "are", lost, kept + lost);
}

// Runs of tokens that are all targets or all not.
struct Run {
  int64_t first;
  int64_t count;
  bool is_target;
};

std::vector<Run> runs_of(const ReadData& data) {
  constexpr int64_t kChunk = 4096;
  std::vector<Run> runs;
  const int64_t end = data.example_first + data.example_count;
  for (int64_t first = data.example_first; first < end; first += kChunk) {
    std::vector<int32_t> values(static_cast<size_t>(std::min(kChunk, end - first)));
    data.tokens->mask(first, std::ssize(values), values.data());
    for (size_t k = 0; k < values.size(); ++k) {
      const bool is_target = values[k] == 0;
      if (runs.empty() || runs.back().is_target != is_target) {
        runs.push_back({first + static_cast<int64_t>(k), 0, is_target});
      }
      ++runs.back().count;
    }
  }
  return runs;
}

// The text of a run, of which only both ends are read when it is long.
std::string text_of(const Run& run, const TokenSequence& tokens, const text::Tokenizer& tokenizer) {
  constexpr int64_t kEnd = 64;
  const auto decode = [&](int64_t first, int64_t count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    tokens.read(first, count, ids.data());
    return tokenizer.decode(ids);
  };
  if (run.count <= 2 * kEnd) return decode(run.first, run.count);
  return decode(run.first, kEnd) + std::string(kCut) + decode(run.first + run.count - kEnd, kEnd);
}

void add_example(const std::vector<ReportPart>& parts, const text::Tokenizer* tokenizer,
                 Report& report) {
  constexpr size_t kRunsMax = 8;
  const auto has_one = [](const ReportPart& part) { return part.data->example_count > 0; };
  const auto part = std::find_if(parts.begin(), parts.end(), has_one);
  if (part == parts.end() || tokenizer == nullptr) return;
  const std::vector<Run> runs = runs_of(*part->data);
  report.line("example", "what of the first record is learned (+) and what is only read (-)");
  for (size_t k = 0; k < std::min(runs.size(), kRunsMax); ++k) {
    const std::string text = text_of(runs[k], *part->data->tokens, *tokenizer);
    report.line("", fmt::format("{} {}", runs[k].is_target ? '+' : '-',
                                one_line(text, kColumns - kLabel - 2)));
  }
  if (runs.size() > kRunsMax) {
    report.line("", fmt::format("and {} more parts", runs.size() - kRunsMax));
  }
}

// Where tokens are that are not in memory.
void add_places(const std::vector<ReportPart>& parts, Report& report) {
  for (const ReportPart& part : parts) {
    if (part.data->kept_in.empty()) continue;
    report.add("", fmt::format("tokens kept in {}, {} on disk", part.data->kept_in,
                               format_bytes(part.data->file_bytes())));
  }
}

}  // namespace

std::string one_line(std::string_view text, size_t columns) {
  struct Character {
    std::string shown;
    size_t columns;
  };
  std::vector<Character> characters;
  size_t all = 0;
  const std::string valid = text::replace_invalid_utf8(text);
  for (size_t at = 0; at < valid.size();) {
    const size_t length = text::utf8_length(valid[at]);
    const auto byte = static_cast<unsigned char>(valid[at]);
    Character next = {valid.substr(at, length), length > 1 ? size_t{2} : size_t{1}};
    if (byte == '\n')
      next.shown = "\\n";
    else if (byte == '\t')
      next.shown = "\\t";
    else if (byte < 0x20 || byte == 0x7F)
      next.shown = fmt::format("\\x{:02x}", byte);
    if (length == 1) next.columns = next.shown.size();
    all += next.columns;
    characters.push_back(std::move(next));
    at += length;
  }
  const bool fits = all <= columns;
  const size_t half = fits ? columns : (columns - kCut.size()) / 2;
  std::string line;
  size_t used = 0;
  size_t at = 0;
  while (at < characters.size() && used + characters[at].columns <= half) {
    used += characters[at].columns;
    line += characters[at++].shown;
  }
  if (fits) return line;
  std::string end;
  used = 0;
  for (size_t last = characters.size(); last > at && used + characters[last - 1].columns <= half;) {
    used += characters[--last].columns;
    end.insert(0, characters[last].shown);
  }
  return line + std::string(kCut) + end;
}

std::string data_report(const std::vector<ReportPart>& parts, const TokenSource& train,
                        const TokenSource& held_out, const text::Tokenizer* tokenizer) {
  Report report;
  for (size_t k = 0; k < parts.size(); ++k) {
    const int64_t samples = train.parts()[k].count;
    std::string text = parts[k].name + ": " + parts[k].data->found;
    if (train.parts()[k].weight > 0) {
      text += fmt::format("; {} of the samples: {} in an epoch, of {} ({:.3g} passes)",
                          share_text(parts[k].draws, train.sample_count()), parts[k].draws, samples,
                          static_cast<double>(parts[k].draws) / static_cast<double>(samples));
      const int64_t tokens = parts[k].data->tokens->count();
      const int64_t targets = parts[k].data->target_count;
      if (targets < tokens) text += fmt::format(", {} learned", share_text(targets, tokens));
    }
    report.add(k == 0 ? "data" : "", text);
  }
  report.add("", amount_text(parts, train, held_out));
  report.add("", cut_text(parts, train));
  add_places(parts, report);
  add_example(parts, tokenizer, report);
  return report.take();
}

}  // namespace strata::data
