// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/explainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "engine/base/units.h"
#include "engine/plan/op_contract.h"

namespace strata::plan {
namespace {

constexpr size_t kLongestPattern = 8;  // ops of one micro-batch that may repeat together

const char kLaneLetters[] = "COUDRSWNIPT";
const char* const kShortPlaneNames[] = {"hi", "lo", "m", "v"};
static_assert(std::size(kShortPlaneNames) == kPlaneCount);
const char* const kGenerationNames[] = {"+0", "+u", "+1"};
const char* const kArenaNames[kArenaCount] = {"device", "host", "nvme", "control"};

void append(std::string& text, const std::string& word, const char* separator) {
  if (!text.empty()) text += separator;
  text += word;
}

// Names the slots of one program: weights and state are numbered by their start, in order of first
// use; other slots have the number of their segment.
class Slots {
 public:
  // The slots of an op's accesses in one mode, each once, as one text.
  std::string name_all(std::span<const Access> accesses, const Op& op, Mode mode) {
    std::vector<Group> groups;
    for (const Access& access : accesses) {
      const bool sum_so_far =
          mode == Mode::kRead && access.value.kind == ValueKind::kGradient && sums(op);
      if (access.mode == mode && !sum_so_far) collect(groups, access);
    }
    std::string text;
    std::string before;
    for (const Group& group : groups) {
      const std::string name = name_of(group, op, mode);
      if (name != before) append(text, name, " ");
      before = name;
    }
    return text;
  }

  std::string table() const {
    std::string text = "slots:";
    for (const Slot& slot : slots_) {
      text += fmt::format(" {}={}+{}", slot.name, slot.begin / kPageBytes,
                          (slot.end - slot.begin + kPageBytes - 1) / kPageBytes);
    }
    return text + "\n";
  }

 private:
  struct Group {
    char letter = 'k';
    Arena arena = Arena::kHost;
    int segment = -1;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Whether an op's `g+` also stands for reading the sum so far.
  static bool sums(const Op& op) {
    return op.kind == OpKind::kBackward || op.kind == OpKind::kWeightGradient ||
           op.kind == OpKind::kLoss;
  }

  static char letter_of(const Value& value) {
    switch (value.kind) {
      case ValueKind::kPlane:
        return value.plane == Plane::kHi ? 'w' : 's';
      case ValueKind::kGradient:
      case ValueKind::kNormGradient:
        return 'g';
      case ValueKind::kActivation:
      case ValueKind::kRows:
        return 'x';
      case ValueKind::kActivationGradient:
      case ValueKind::kRowGradient:
        return 'd';
      case ValueKind::kInterior:
      case ValueKind::kOperands:
        return 'i';
      case ValueKind::kBranch:
      case ValueKind::kBranchGradient:
        return 'b';
      case ValueKind::kKeys:
      case ValueKind::kKeyGradient:
      case ValueKind::kScores:
      case ValueKind::kProjected:
      case ValueKind::kProjectedGradient:
      case ValueKind::kNormSums:
      case ValueKind::kHeads:
      case ValueKind::kHeadsGradient:
      case ValueKind::kAttended:
      case ValueKind::kAttendedGradient:
        return 'a';
      case ValueKind::kScratch:
        return 'k';
      case ValueKind::kCache:
        return 'c';
      case ValueKind::kTokens:
      case ValueKind::kTargets:
      case ValueKind::kPositions:
        return 't';
      case ValueKind::kRope:
        return 'r';
      case ValueKind::kLossSum:
      case ValueKind::kLogits:
        return 'l';
      case ValueKind::kNormPartial:
      case ValueKind::kNormSum:
        return 'n';
      case ValueKind::kDecision:
        return 'u';
    }
    return '?';
  }

  static void collect(std::vector<Group>& groups, const Access& access) {
    const char letter = letter_of(access.value);
    const int segment = letter == 'n' ? -1 : access.value.segment;
    for (Group& group : groups) {
      if (group.letter != letter || group.arena != access.arena || group.segment != segment)
        continue;
      group.begin = std::min(group.begin, access.offset);
      group.end = std::max(group.end, access.offset + access.bytes);
      return;
    }
    groups.push_back({letter, access.arena, segment, access.offset, access.offset + access.bytes});
  }

  std::string name_of(const Group& group, const Op& op, Mode mode) {
    if (group.arena == Arena::kNvme) return group.letter == 'g' ? "nvme.g" : "nvme";
    if (group.arena == Arena::kControl) return std::string(1, group.letter);
    std::string name(1, group.letter);
    if (group.letter == 'w' || group.letter == 's') {
      auto& known = numbers_[{group.letter, group.arena, group.begin}];
      if (known == 0) known = ++last_[{group.letter, group.arena}];
      name += fmt::format("{}", known);
    } else if (group.segment >= 0 && group.letter != 'k') {
      name += fmt::format("{}", group.segment);
    }
    if (group.arena == Arena::kDevice) name += '*';
    remember(name, group);
    if (group.letter == 'g' && sums(op)) name += '+';
    if (group.letter == 'g' && op.kind == OpKind::kOptimize) name += '-';
    return name;
  }

  void remember(const std::string& name, const Group& group) {
    const auto [at, fresh] = indices_.insert({name, slots_.size()});
    if (fresh) slots_.push_back({name, group.begin, group.end});
    Slot& slot = slots_[at->second];
    slot.begin = std::min(slot.begin, group.begin);
    slot.end = std::max(slot.end, group.end);
  }

  struct Slot {
    std::string name;
    int64_t begin = 0;
    int64_t end = 0;
  };

  std::map<std::tuple<char, Arena, int64_t>, int> numbers_;
  std::map<std::pair<char, Arena>, int> last_;
  std::map<std::string, size_t> indices_;
  std::vector<Slot> slots_;  // in order of first use
};

// The text of one op in columns. Two ops that differ only in micro-batch have the same text.
struct Line {
  std::string kind, segment, planes, slots, waits;
  Lane lane = Lane::kCompute;
  bool predicated = false;
  int micro_batch = -1;
  int place = 0;  // on its lane, from 1
  bool same_but_micro_batch(const Line& other) const {
    return lane == other.lane && predicated == other.predicated && kind == other.kind &&
           segment == other.segment && planes == other.planes && slots == other.slots;
  }
};

std::string planes_of(std::span<const Access> accesses, Mode mode, bool bare) {
  std::string text;
  for (int g = 0; g < 3; ++g) {
    std::string names;
    for (int p = 0; p < kPlaneCount; ++p) {
      const bool has = std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
        return access.mode == mode && access.value.kind == ValueKind::kPlane &&
               access.value.plane == static_cast<Plane>(p) &&
               access.value.generation == static_cast<Generation>(g);
      });
      if (has) append(names, kShortPlaneNames[p], ",");
    }
    if (!names.empty()) append(text, (bare ? "" : names) + kGenerationNames[g], " ");
  }
  return text;
}

std::string waits_of(const Program& program, const Op& op) {
  std::string text;
  for (const Wait& wait : program.waits_of(op)) {
    const char letter = kLaneLetters[static_cast<size_t>(wait.lane)];
    append(text,
           wait.count > 0 ? fmt::format("{}{}", letter, wait.count)
                          : fmt::format("'{}{}", letter, -wait.count),
           " ");
  }
  return text;
}

std::vector<Line> lines_of(const Program& program, const model::ModelSpec& spec, Slots& slots) {
  std::vector<Line> lines;
  std::array<int, kLaneCount> places = {};
  for (const Op& op : program.ops) {
    const std::span<const Access> accesses = program.accesses_of(op);
    Line line;
    line.lane = op.lane;
    line.place = ++places[static_cast<size_t>(op.lane)];
    line.predicated = op.predicate == Predicate::kPending;
    line.kind = contract_of(op.kind).name;
    line.segment = op.segment >= 0 ? spec.segments[op.segment].name : "";
    if (op.chunk >= 0) line.segment += fmt::format(".{}", op.chunk);
    if (op.chunk >= 0 && op.chunk_count > 1)
      line.segment += fmt::format("-{}", op.chunk + op.chunk_count - 1);
    line.micro_batch = op.micro_batch;
    const std::string read = planes_of(accesses, Mode::kRead, false);
    line.planes = read.empty() ? planes_of(accesses, Mode::kWrite, false) : read;
    if (op.kind == OpKind::kOptimize)
      line.planes += " > " + planes_of(accesses, Mode::kWrite, true);
    line.slots = slots.name_all(accesses, op, Mode::kRead);
    line.slots += (line.slots.empty() ? "> " : " > ") + slots.name_all(accesses, op, Mode::kWrite);
    line.waits = waits_of(program, op);
    lines.push_back(line);
  }
  return lines;
}

// How often the `size` lines from `begin` on repeat for ascending micro-batches without further
// waits.
size_t repeats(const std::vector<Line>& lines, size_t begin, size_t size) {
  size_t count = 1;
  for (;; ++count) {
    const size_t from = begin + count * size;
    if (from + size > lines.size()) return count;
    for (size_t i = 0; i < size; ++i) {
      const Line& first = lines[begin + i];
      const Line& next = lines[from + i];
      if (first.micro_batch < 0 || (!next.waits.empty() && next.waits != first.waits) ||
          !first.same_but_micro_batch(next) ||
          next.micro_batch != first.micro_batch + static_cast<int>(count)) {
        return count;
      }
    }
  }
}

// `stride` is the number of ops of the line's lane in the repeated lines.
void print(std::string& text, const Line& line, size_t stride, size_t count) {
  const char letter = kLaneLetters[static_cast<size_t>(line.lane)];
  std::string place = fmt::format("{}{}", letter, line.place);
  std::string planes = line.planes;
  if (line.micro_batch >= 0) {
    std::string micro_batches = fmt::format("mb{}", line.micro_batch);
    if (count > 1) micro_batches += fmt::format("-{}", line.micro_batch + count - 1);
    planes = micro_batches + (planes.empty() ? "" : " ") + planes;
  }
  if (count > 1) {
    const char* const join = stride == 1 ? "-" : count == 2 ? "," : "..";
    place += fmt::format("{}{}", join, static_cast<size_t>(line.place) + stride * (count - 1));
  }
  std::string row =
      fmt::format("{:<10} {} {:<9} {:<12} {:<18} {:<30}", place, line.predicated ? '?' : ' ',
                  line.kind, line.segment, planes, line.slots);
  if (!line.waits.empty()) row += " | " + line.waits;
  row.erase(row.find_last_not_of(' ') + 1);
  text += row + "\n";
}

}  // namespace

std::string explain(const Plan& plan, const model::ModelSpec& spec, ProgramName name) {
  const Program& program = plan.program(name);
  Slots slots;
  const std::vector<Line> lines = lines_of(program, spec, slots);
  std::string body;
  size_t printed = 0;
  for (size_t at = 0; at < lines.size();) {
    size_t size = 1;
    size_t count = 1;
    for (size_t s = 1; s <= kLongestPattern && at + 2 * s <= lines.size(); ++s) {
      const size_t c = repeats(lines, at, s);
      if (c > 1 && c * s > count * size) {
        size = s;
        count = c;
      }
    }
    for (size_t i = at; i < at + size; ++i) {
      size_t stride = 0;
      for (size_t j = at; j < at + size; ++j) stride += lines[j].lane == lines[i].lane ? 1 : 0;
      print(body, lines[i], stride, count);
    }
    printed += size;
    at += size * count;
  }
  return fmt::format("{}{} {} ops {} lines\n{}", slots.table(), name_of(name), program.ops.size(),
                     printed, body);
}

std::string summary(const Plan& plan) {
  std::string text;
  for (int arena = 0; arena < kArenaCount; ++arena) {
    std::vector<std::pair<std::string, int64_t>> purposes;
    int64_t named = 0;
    for (const LedgerLine& line : plan.arenas.lines) {
      if (static_cast<int>(line.arena) != arena || line.bytes == 0) continue;
      auto at = std::find_if(purposes.begin(), purposes.end(),
                             [&](const auto& known) { return known.first == line.purpose; });
      if (at == purposes.end()) at = purposes.insert(at, {line.purpose, 0});
      at->second += line.bytes;
      named += line.bytes;
    }
    const int64_t used = plan.arenas.bytes[arena];
    if (used == 0 && purposes.empty()) continue;
    for (const auto& [purpose, bytes] : purposes) {
      text += fmt::format("{:<8} {:<32} {:>18}\n", kArenaNames[arena], purpose, bytes);
    }
    if (used > named) {
      text +=
          fmt::format("{:<8} {:<32} {:>18}\n", kArenaNames[arena], "between slots", used - named);
    }
    text += fmt::format("{:<8} {:<32} {:>18} of {}\n", kArenaNames[arena], "used", used,
                        plan.arenas.budget[arena]);
  }
  return text;
}

}  // namespace strata::plan
