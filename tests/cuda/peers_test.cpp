// SPDX-License-Identifier: Apache-2.0
// Devices that send each other memory by NCCL, through the CUDA device's host code over a fake NCCL
// for ranks that are threads: bytes come to their place, in the order of each queue; where NCCL
// cannot be used, the reason is said.
#include <cstdio>
#include <cstdlib>

#include "tests/cuda/peers_rank.h"
#include "tests/support/seeds.h"

namespace strata {
namespace {

using test::await;
using test::expect_all_well;
using test::kRoom;
using test::make_id;
using test::on_ranks;
using test::Rank;

constexpr int64_t kPieces = 4;  // from each rank to each other, of several lengths
constexpr int64_t kHalf = Rank::kBytes / 2;

int64_t length_of(int from, int to, int64_t piece) {
  constexpr int64_t kLengths[] = {1, 300, kRoom, 12345, 4096, kRoom - 1};
  return kLengths[(from + 2 * to + piece) % 6];
}
std::byte byte_of(int from, int to, int64_t piece, int64_t at) {
  return static_cast<std::byte>(at * 31 + at / 251 + from * 7 + to * 13 + piece * 101);
}

// The pieces of a rank: on the host and, of the same places, in both halves of its memory.
struct Pieces {
  explicit Pieces(const Rank& rank) : out(kHalf), in(kHalf) {
    for (int peer = 0; peer < rank.size; ++peer) {
      for (int64_t piece = 0; piece < kPieces && peer != rank.rank; ++piece) {
        const int64_t room = room_of(peer, piece);
        for (int64_t i = 0; i < kRoom; ++i) {
          out[static_cast<size_t>(room + i)] = byte_of(rank.rank, peer, piece, i);
        }
        sends.push_back({rank.at(room), length_of(rank.rank, peer, piece), peer});
        receives.push_back({rank.at(kHalf + room), length_of(peer, rank.rank, piece), peer});
      }
    }
  }
  static int64_t room_of(int peer, int64_t piece) { return (peer * kPieces + piece) * kRoom; }

  // Of what came in, with zeros behind each piece.
  int64_t wrong_bytes(const Rank& rank) const {
    int64_t wrong = 0;
    for (int peer = 0; peer < rank.size; ++peer) {
      for (int64_t piece = 0; piece < kPieces; ++piece) {
        const int64_t length = peer == rank.rank ? 0 : length_of(peer, rank.rank, piece);
        for (int64_t i = 0; i < kRoom; ++i) {
          const auto wanted = i < length ? byte_of(peer, rank.rank, piece, i) : std::byte{0};
          wrong += in[static_cast<size_t>(room_of(peer, piece) + i)] != wanted;
        }
      }
    }
    return wrong;
  }

  std::vector<std::byte> out, in;
  test::Transfers sends, receives;
};

// The exchange is an op between two others: one that fills the device's memory, and one that takes
// from it. The thread's current device is another, and stays so.
void exchange_pieces(int own, int size, const kernels::PeersId& id) {
  const int other = (own + 1) % size;
  test::FakeGpu::call<int(int)>("cudaSetDevice")(other);
  Rank rank(own, size, own);
  rank.join(id);
  Pieces pieces(rank);
  const auto host = rank.device->make_queue("host", 4);
  host->begin("fill", {});
  host->copy(rank.at(0), pieces.out.data(), kHalf);
  host->copy(rank.at(kHalf), pieces.in.data(), kHalf);
  rank.queue->wait(*host, host->end());
  host->wait(*rank.queue, rank.exchange(pieces.sends, pieces.receives));
  host->begin("take", {});
  host->copy(pieces.in.data(), rank.at(kHalf), kHalf);
  await(*host, host->end());
  EXPECT_EQ(pieces.wrong_bytes(rank), 0) << "rank " << own;
  int current = -1;
  test::FakeGpu::call<int(int*)>("cudaGetDevice")(&current);
  EXPECT_EQ(current, other);
}

TEST(CudaPeers, GetEachPieceInItsPlace) {
  for (uint64_t seed = 1; seed <= test::seeds(2); ++seed) {
    for (const int size : {2, 4}) {
      SCOPED_TRACE(std::to_string(size) + " ranks, seed " + std::to_string(seed));
      test::FakeGpu::configure("devices=4 delay_us=300 seed=" + std::to_string(seed));
      const kernels::PeersId id = make_id();
      expect_all_well(on_ranks(size, [&](int own) { exchange_pieces(own, size, id); }));
      EXPECT_EQ(test::FakeGpu::calls("ncclCommFinalize"), size);
      EXPECT_EQ(test::FakeGpu::calls("ncclCommDestroy"), size);
      EXPECT_EQ(test::FakeGpu::calls("ncclCommAbort"), 0);
    }
  }
}

// Each rank sends on what it received in the call before.
TEST(CudaPeers, DoOneCallAfterTheOther) {
  constexpr int kRanks = 4;
  test::FakeGpu::configure("devices=4 delay_us=200");
  const kernels::PeersId id = make_id();
  expect_all_well(on_ranks(kRanks, [&](int own) {
    Rank rank(own, kRanks, own);
    rank.join(id);
    std::vector<std::byte> bytes(kRoom, static_cast<std::byte>(own + 1));
    rank.queue->begin("fill", {});
    rank.queue->copy(rank.at(0), bytes.data(), kRoom);
    int64_t last = rank.queue->end();
    for (int64_t step = 0; step < kRanks - 1; ++step) {
      await(*rank.queue, last - 2);  // the depth of the queue
      last = rank.pass_on(step * kRoom, (step + 1) * kRoom);
    }
    rank.queue->begin("take", {});
    rank.queue->copy(bytes.data(), rank.at((kRanks - 1) * kRoom), kRoom);
    await(*rank.queue, rank.queue->end());
    const int first = (own + 1) % kRanks;
    EXPECT_EQ(bytes, std::vector<std::byte>(kRoom, static_cast<std::byte>(first + 1)));
    rank.peers->check();
  }));
}

TEST(CudaPeers, ExchangeInTwoGroupsAtOnce) {
  test::FakeGpu::configure("devices=2 delay_us=500");
  const kernels::PeersId first_id = make_id(), second_id = make_id();
  EXPECT_NE(first_id, second_id);
  expect_all_well(on_ranks(2, [&](int own) {
    Rank first(own, 2, own), second(own, 2, own);
    first.join(first_id);
    second.join(second_id);
    for (Rank* rank : {&first, &second}) {
      const std::vector<std::byte> bytes(kRoom,
                                         static_cast<std::byte>(own + (rank == &first ? 10 : 20)));
      rank->queue->begin("fill", {});
      rank->queue->copy(rank->at(0), bytes.data(), kRoom);
      await(*rank->queue, rank->queue->end());
    }
    (void)first.pass_on(0, kRoom);
    (void)second.pass_on(0, kRoom);
    for (Rank* rank : {&second, &first}) {
      std::vector<std::byte> bytes(kRoom);
      rank->queue->begin("take", {});
      rank->queue->copy(bytes.data(), rank->at(kRoom), kRoom);
      await(*rank->queue, rank->queue->end());
      const int wanted = 1 - own + (rank == &first ? 10 : 20);
      EXPECT_EQ(bytes, std::vector<std::byte>(kRoom, static_cast<std::byte>(wanted)));
    }
  }));
}

// The library is loaded once in a process, so each of these is a process of its own.
[[noreturn]] void say_and_exit(const char* setting) {
  test::FakeGpu::configure(setting);
  const kernels::DevicePlugin& plugin = test::FakeGpu::plugin();
  std::string text;
  const bool has = plugin.has_peers(text);
  std::string thrown = "nothing";
  try {
    (void)make_id();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kDevice) thrown = error.what();
  }
  std::fprintf(stderr, "%s: [%s], throws [%s]\n", has ? "has them" : "has none", text.c_str(),
               thrown.c_str());
  std::_Exit(0);
}

TEST(CudaPeers, AreThereWhereNcclIs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends_well = testing::ExitedWithCode(0);
  EXPECT_EXIT(say_and_exit(""), ends_well, "has them: \\[NCCL 2.28.3\\], throws \\[nothing\\]");
  EXPECT_EXIT(say_and_exit("nccl=21800"), ends_well, "has them: \\[NCCL 2.18.0\\]");
  EXPECT_EXIT(say_and_exit("nccl=0"), ends_well,
              "has none: \\[libnccl.so.2 was not found \\(install NCCL 2.18 or later, or "
              "give --device-exchange host\\)\\], throws \\[cuda: libnccl.so.2 was not found");
  EXPECT_EXIT(say_and_exit("nccl=21703"), ends_well,
              "has none: \\[libnccl.so.2 is NCCL 2.17.3, which is too old \\(install NCCL "
              "2.18 or later, or give --device-exchange host\\)\\]");
}

}  // namespace
}  // namespace strata
