// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/comm/bytes.h"
#include "engine/comm/ordered_sum.h"

// Gathers and sums of ranks on several machines. Each byte goes once to each machine: rank `seat`
// of a machine exchanges with the ranks of that seat on the others, and shares with those of its
// own machine, piece by piece, so that both go on at the same time. Sums add the ranks of a machine
// in order, then the machines in order.
//
// `Transfers` begins transfers by send(rank, data, bytes) and receive(rank, data, bytes), and
// await() ends all of those that are under_way(), or the first so many. Transfers within a machine
// and those between machines are given apart.
namespace strata::comm {

struct NestPlace {
  int rank = 0;
  int size = 1;
  int near = 1;  // ranks of a machine, which follow each other

  int nodes() const { return size / near; }
  int node() const { return rank / near; }
  int seat() const { return rank % near; }
  int at(int node, int seat) const { return node * near + seat; }
  bool is_near(int other) const { return other / near == node(); }

  // The others of this rank's machine, and of its seat, from the next on, so that ranks do not all
  // turn to one.
  template <typename Function>
  void each_near(Function function) const {
    for (int k = 1; k < near; ++k) function(at(node(), (seat() + k) % near));
  }
  template <typename Function>
  void each_far(Function function) const {
    for (int k = 1; k < nodes(); ++k) function(at((node() + k) % nodes(), seat()));
  }
};

// Bytes in parts, one for each rank, of which the last may be shorter or not exist.
struct Whole {
  void* base = nullptr;
  int64_t part_bytes = 0;
  int64_t bytes = 0;  // of all parts
};

template <typename Transfers>
class NestedGather {
 public:
  // Where there are several machines, parts go in pieces of so many bytes.
  NestedGather(const NestPlace& place, Transfers& within, Transfers& between,
               int64_t piece_bytes = int64_t{1} << 20)
      : place_(place), within_(within), between_(between), piece_bytes_(piece_bytes) {}

  // Each rank has its part of each whole, and gets the others'.
  void run(std::span<const Whole> wholes) {
    // Pieces matter only where one can be shared while the next one comes.
    const bool both = place_.near > 1 && place_.nodes() > 1;
    Piece last = {};
    for (const Whole& whole : wholes) {
      const int64_t piece_bytes = both ? piece_bytes_ : std::max<int64_t>(whole.part_bytes, 1);
      for (int64_t first = 0; first < whole.part_bytes; first += piece_bytes) {
        const Piece piece = {&whole, first, std::min(piece_bytes, whole.part_bytes - first)};
        fetch(piece);
        if (last.whole != nullptr) share(last);
        last = piece;
        if (!both) continue;
        within_.await();
        between_.await();
      }
    }
    if (last.whole != nullptr) share(last);
    within_.await();
    between_.await();
  }

 private:
  struct Piece {
    const Whole* whole = nullptr;
    int64_t first = 0;  // in each part
    int64_t bytes = 0;
  };

  template <typename Move>
  static void part(const Piece& piece, int rank, Move move) {
    const int64_t begin = rank * piece.whole->part_bytes + piece.first;
    const int64_t bytes = std::clamp<int64_t>(piece.whole->bytes - begin, 0, piece.bytes);
    move(byte_at(piece.whole->base, begin), bytes);
  }
  void receive(Transfers& transfers, int peer, const Piece& piece, int of) {
    part(piece, of, [&](std::byte* to, int64_t bytes) { transfers.receive(peer, to, bytes); });
  }
  void send(Transfers& transfers, int peer, const Piece& piece, int of) {
    part(piece, of, [&](std::byte* from, int64_t bytes) { transfers.send(peer, from, bytes); });
  }

  // The parts of this rank's seat from the other machines.
  void fetch(const Piece& piece) {
    place_.each_far([&](int peer) { receive(between_, peer, piece, peer); });
    place_.each_far([&](int peer) { send(between_, peer, piece, place_.rank); });
  }

  // Those, and its own, with the others of the machine.
  void share(const Piece& piece) {
    place_.each_near([&](int peer) {
      for (int node = 0; node < place_.nodes(); ++node) {
        receive(within_, peer, piece, place_.at(node, peer % place_.near));
      }
    });
    place_.each_near([&](int peer) {
      for (int node = 0; node < place_.nodes(); ++node) {
        send(within_, peer, piece, place_.at(node, place_.seat()));
      }
    });
  }

  const NestPlace place_;
  Transfers& within_;
  Transfers& between_;
  const int64_t piece_bytes_;
};

// Pieces of a sum that are under way between machines at once. Of host memory, while one of them is
// summed the others move, also when another rank is late by some of them.
inline constexpr int64_t kPiecesUnderWay = 4;
// The most that host sums stage of each other rank, in all these pieces.
inline constexpr int64_t kStagedBytes = int64_t{1} << 20;

// Sums of host memory. A NestedSum takes another's place where bytes lie elsewhere: longest() says
// how long a stretch may be of which `rooms` are staged at once, and room() where.
class HostSums {
 public:
  // Uses at most 2 MiB of `staging` for each other rank.
  explicit HostSums(std::vector<std::byte>& staging) : staging_(staging) {}

  template <typename T, typename Wire>
  int64_t longest(int64_t /*rooms*/, int64_t depth) const {
    return kStagedBytes / depth / static_cast<int64_t>(sizeof(T));
  }
  std::byte* room(int64_t bytes) {
    staging_.resize(static_cast<size_t>(bytes));
    return staging_.data();
  }
  template <typename From, typename To>
  void convert(const From* from, To* to, int64_t count) {
    comm::convert(from, to, count);
  }
  template <typename T, typename Source, typename Output>
  void sum(std::span<const Source* const> sources, Output* out, int64_t count) {
    Output* const outputs[] = {out};
    ordered_sum<T, Source, Output>(sources, outputs, count);
  }

 private:
  std::vector<std::byte>& staging_;
};

// Each rank gets its part of the sum of all ranks' `whole`. What is sent is of type Wire: T, or
// what T is rounded to, as what a machine has summed is, too.
template <typename T, typename Wire, typename Transfers, typename Sums>
class NestedSum {
 public:
  NestedSum(const NestPlace& place, Transfers& within, Transfers& between, Sums& sums)
      : place_(place), within_(within), between_(between), sums_(sums) {}

  // `part_numel` elements of `whole` for each rank, of which those behind `count` do not exist.
  void run(const T* whole, int64_t part_numel, int64_t count, T* out) {
    whole_ = whole;
    part_numel_ = part_numel;
    count_ = count;
    const bool between = place_.nodes() > 1;
    const int64_t depth = between ? kDepth : 1;
    longest_ = std::min(part_numel, sums_.template longest<T, Wire>(rooms() * depth, depth));
    const int64_t room = rooms() * longest_;
    auto* const staging =
        reinterpret_cast<Wire*>(sums_.room(room * depth * static_cast<int64_t>(sizeof(Wire))));
    int64_t number = 0;
    for (int64_t first = 0; first < part_numel; first += longest_, ++number) {
      Piece& piece = pieces_[number % kDepth];
      if (between && number >= kDepth) sum_machines(piece, out);  // which it was before
      piece.first = first;
      piece.room = staging + number % depth * room;
      sum_machine(piece, out);
      if (between) begin_between(piece);
    }
    if (!between) return;
    for (int64_t last = std::max<int64_t>(number - kDepth, 0); last < number; ++last) {
      sum_machines(pieces_[last % kDepth], out);
    }
  }

 private:
  static constexpr bool kRounds = !std::is_same_v<T, Wire>;
  static constexpr int64_t kDepth = kPiecesUnderWay;

  struct Piece {
    int64_t first = 0;                  // in each part
    Wire* room = nullptr;               // what is left of the staging
    std::vector<const Wire*> sums;      // of this machine, by machine whose part it is
    std::vector<const Wire*> received;  // of this rank's part, by machine
    size_t transfers = 0;               // between machines
  };

  // Stretches of the longest piece that wait at once.
  int64_t rooms() const {
    const int64_t nodes = place_.nodes();
    return place_.size - nodes + (kRounds ? place_.size : 0) + (nests() ? nodes : 0) + nodes - 1;
  }
  bool nests() const { return place_.near > 1 && place_.nodes() > 1; }

  int64_t length(const Piece& piece, int rank) const {
    const int64_t most = std::min(longest_, part_numel_ - piece.first);
    return std::clamp<int64_t>(count_ - rank * part_numel_ - piece.first, 0, most);
  }
  int64_t bytes(const Piece& piece, int rank) const {
    return length(piece, rank) * static_cast<int64_t>(sizeof(Wire));
  }
  Wire* take_room(Piece& piece) const {
    Wire* room = piece.room;
    piece.room += longest_;
    return room;
  }
  const Wire* contribution(Piece& piece, int rank) {
    const int64_t count = length(piece, rank);
    if (count == 0) return nullptr;
    const T* from = whole_ + rank * part_numel_ + piece.first;
    if constexpr (kRounds) {
      Wire* rounded = take_room(piece);
      sums_.convert(from, rounded, count);
      return rounded;
    } else {
      return from;
    }
  }

  // What this machine adds to the parts of this rank's seat: of one machine, that is the sum.
  void sum_machine(Piece& piece, T* out) {
    const int nodes = place_.nodes();
    std::vector<std::vector<const Wire*>> sources(
        static_cast<size_t>(nodes), std::vector<const Wire*>(static_cast<size_t>(place_.near)));
    const auto source = [&](int node, int seat) -> const Wire*& {
      return sources[static_cast<size_t>(node)][static_cast<size_t>(seat)];
    };
    place_.each_near([&](int peer) {
      for (int node = 0; node < nodes; ++node) {
        Wire* room = take_room(piece);
        source(node, peer % place_.near) = room;
        within_.receive(peer, room, bytes(piece, place_.at(node, place_.seat())));
      }
    });
    const auto give = [&](int peer) {
      for (int node = 0; node < nodes; ++node) {
        const int rank = place_.at(node, peer % place_.near);
        within_.send(peer, contribution(piece, rank), bytes(piece, rank));
      }
    };
    place_.each_near(give);
    for (int node = 0; node < nodes; ++node) {
      source(node, place_.seat()) = contribution(piece, place_.at(node, place_.seat()));
    }
    within_.await();
    if (nodes == 1) {
      return sums_.template sum<T, Wire, T>(sources.front(), out + piece.first,
                                            length(piece, place_.rank));
    }
    piece.sums.assign(static_cast<size_t>(nodes), nullptr);
    for (int node = 0; node < nodes; ++node) {
      const Wire*& sum = piece.sums[static_cast<size_t>(node)];
      sum = source(node, 0);
      if (!nests()) continue;
      Wire* const room = take_room(piece);
      sum = room;
      sums_.template sum<T, Wire, Wire>(sources[static_cast<size_t>(node)], room,
                                        length(piece, place_.at(node, place_.seat())));
    }
  }

  void begin_between(Piece& piece) {
    piece.received = piece.sums;
    const size_t before = between_.under_way();
    const auto node_of = [&](int peer) { return static_cast<size_t>(peer / place_.near); };
    place_.each_far([&](int peer) {
      Wire* room = take_room(piece);
      piece.received[node_of(peer)] = room;
      between_.receive(peer, room, bytes(piece, place_.rank));
    });
    place_.each_far(
        [&](int peer) { between_.send(peer, piece.sums[node_of(peer)], bytes(piece, peer)); });
    piece.transfers = between_.under_way() - before;
  }

  // Of the oldest piece that is under way.
  void sum_machines(const Piece& piece, T* out) {
    between_.await(piece.transfers);
    sums_.template sum<T, Wire, T>(piece.received, out + piece.first, length(piece, place_.rank));
  }

  const NestPlace place_;
  Transfers& within_;
  Transfers& between_;
  Sums& sums_;

  const T* whole_ = nullptr;
  int64_t part_numel_ = 0;
  int64_t count_ = 0;
  int64_t longest_ = 1;
  std::array<Piece, kDepth> pieces_;
};

}  // namespace strata::comm
