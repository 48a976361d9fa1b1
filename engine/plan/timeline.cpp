// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "engine/base/check.h"
#include "engine/plan/op_contract.h"

namespace strata::plan {
namespace {

constexpr std::array<const char*, kLaneCount> kLaneNames = {
    "compute", "optimizer", "upload", "download", "read_weights", "read_state", "write", "comm"};
constexpr size_t kRowsPerLane = 1000;  // thread ids of a lane: room for every depth in use

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}

// The first row of the lane that is free at `start_s`: bars of one row must not overlap.
size_t take_row(std::vector<double>& row_ends, const Span& span) {
  size_t row = 0;
  while (row < row_ends.size() && row_ends[row] > span.start_s) ++row;
  if (row == row_ends.size()) row_ends.push_back(0);
  row_ends[row] = span.end_s;
  return row;
}

void append_name(std::string& out, const char* what, size_t thread, std::string_view name) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"ph":"M","pid":1,"tid":{},"name":"{}","args":{{"name":")", thread, what);
  append_escaped(out, name);
  out += "\"}},\n";
}

}  // namespace

const char* name_of(Lane lane) {
  return kLaneNames[static_cast<size_t>(lane)];
}

std::string span_name(const Op& op, const model::ModelSpec& spec) {
  std::string name = contract_of(op.kind).name;
  if (op.segment >= 0) {
    STRATA_CHECK(static_cast<size_t>(op.segment) < spec.segments.size());
    name += " " + spec.segments[static_cast<size_t>(op.segment)].name;
  }
  if (op.chunk >= 0) name += fmt::format(" c{}", op.chunk);
  if (op.chunk >= 0 && op.chunk_count > 1)
    name += fmt::format("-{}", op.chunk + op.chunk_count - 1);
  if (op.micro_batch >= 0) name += fmt::format(" mb{}", op.micro_batch);
  return name;
}

std::vector<Span> spans_of(const Program& program, const model::ModelSpec& spec,
                           const SimulationResult& result) {
  std::vector<Span> spans;
  for (size_t i = 0; i < result.times.size(); ++i) {
    const OpTime& time = result.times[i];
    const Op& op = program.ops[i % program.ops.size()];
    if (time.end_s > time.start_s) {
      spans.push_back({op.lane, span_name(op, spec), time.start_s, time.end_s});
    }
  }
  return spans;
}

std::string trace_json(std::string_view process, std::span<const Span> spans) {
  std::vector<size_t> by_start(spans.size());
  std::iota(by_start.begin(), by_start.end(), size_t{0});
  std::stable_sort(by_start.begin(), by_start.end(),
                   [&](size_t a, size_t b) { return spans[a].start_s < spans[b].start_s; });

  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  append_name(out, "process_name", 0, process);
  std::array<std::vector<double>, kLaneCount> row_ends;
  for (const size_t i : by_start) {
    const Span& span = spans[i];
    std::vector<double>& ends = row_ends[static_cast<size_t>(span.lane)];
    const size_t lane_thread = static_cast<size_t>(span.lane) * kRowsPerLane;
    const size_t rows_before = ends.size();
    const size_t thread = lane_thread + take_row(ends, span);
    if (ends.size() > rows_before) append_name(out, "thread_name", thread, name_of(span.lane));
    fmt::format_to(std::back_inserter(out),
                   R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":")", thread,
                   span.start_s * 1e6, (span.end_s - span.start_s) * 1e6);
    append_escaped(out, span.name);
    out += "\"},\n";
  }
  out.resize(out.size() - 2);  // the last comma
  return out + "\n]}\n";
}

}  // namespace strata::plan
