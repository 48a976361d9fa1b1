// SPDX-License-Identifier: Apache-2.0
// What a rank's TCP connections do: bytes arrive in order and whole however ranks wait for them,
// a transfer of another size and a connection that ends are errors of that rank alone, and waits
// end when they are interrupted, late or closed.
#include "engine/comm/tcp_transport.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "tests/comm/tcp_support.h"

namespace strata::comm {
namespace {

using std::chrono::milliseconds;
using Transfers = std::vector<std::unique_ptr<Transport::Transfer>>;

constexpr milliseconds kLong(60'000);

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Rank 1, or rank 0, of two whose other end the test holds bare.
struct OneRank {
  explicit OneRank(size_t rank = 0) {
    std::vector<Socket> connections(2);
    std::tie(connections[1 - rank], bare) = connected_pair();
    transport = std::make_unique<TcpTransport>(std::move(connections));
  }
  // As the other rank sends a transfer: its size, and bytes.
  void send_bare(int64_t size, const std::string& bytes) const {
    std::string all(reinterpret_cast<const char*>(&size), sizeof(size));
    all += bytes;
    ASSERT_EQ(bare.write_some(all), all.size());
  }
  Socket bare;
  std::unique_ptr<TcpTransport> transport;
};

// Runs `body` on a thread a rank.
void run_ranks(size_t count, const std::function<void(TcpTransport&, size_t)>& body) {
  auto connections = connected_ranks(count);
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      TcpTransport transport(std::move(connections[r]));
      EXPECT_EQ(text_of([&] { body(transport, r); }), "");
    });
  }
}

std::vector<uint32_t> numbered(size_t bytes, size_t from, size_t to) {
  std::vector<uint32_t> values(bytes / sizeof(uint32_t));
  std::iota(values.begin(), values.end(), static_cast<uint32_t>((from * 7 + to) << 26));
  return values;
}

// Each rank waits for what it sends before what it receives, so all must move meanwhile.
void exchange_with_all(size_t count, size_t bytes) {
  run_ranks(count, [&](TcpTransport& transport, size_t rank) {
    std::vector<std::vector<uint32_t>> out(count), in(count);
    Transfers sends, receives;
    for (size_t k = 1; k < count; ++k) {
      const size_t peer = (rank + k) % count;
      out[peer] = numbered(bytes, rank, peer);
      in[peer].resize(bytes / sizeof(uint32_t));
      const auto size = static_cast<int64_t>(bytes);
      sends.push_back(transport.send(static_cast<int>(peer), out[peer].data(), size));
      receives.push_back(transport.receive(static_cast<int>(peer), in[peer].data(), size));
    }
    for (const auto& send : sends) EXPECT_TRUE(send->wait(kLong));
    for (const auto& receive : receives) EXPECT_TRUE(receive->wait(kLong));
    for (size_t peer = 0; peer < count; ++peer) {
      if (peer == rank) continue;
      EXPECT_TRUE(in[peer] == numbered(bytes, peer, rank)) << peer;
    }
  });
}

TEST(TcpTransport, LargeTransfersInBothDirectionsAtOnceMove) {
  exchange_with_all(2, size_t{64} << 20);
}

TEST(TcpTransport, AllRanksSendToAllAtOnce) {
  exchange_with_all(3, size_t{12} << 20);
  exchange_with_all(4, size_t{8} << 20);
}

// Sizes from nothing to more than a step and than a socket's buffers; each rank waits in an order
// of its own.
TEST(TcpTransport, TransfersOfAnySizeArriveInOrder) {
  const Philox random(5);
  std::vector<size_t> sizes = {0, 1, 7, 8, 9, 0, 48, 4096, 3 << 20, 1, 9 << 20, 0};
  for (uint64_t i = 0; i < 200; ++i) sizes.push_back(random.u64(i, 0) % 9000);
  run_ranks(2, [&](TcpTransport& transport, size_t rank) {
    const int peer = static_cast<int>(1 - rank);
    std::vector<std::string> out, in;
    for (size_t i = 0; i < sizes.size(); ++i) {
      out.emplace_back(sizes[i], static_cast<char>('a' + (i + rank) % 26));
      in.emplace_back(sizes[i], '\0');
    }
    Transfers sends, receives;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto size = static_cast<int64_t>(sizes[i]);
      receives.push_back(transport.receive(peer, in[i].data(), size));
      sends.push_back(transport.send(peer, out[i].data(), size));
    }
    if (rank == 1) std::swap(sends, receives);
    for (auto one = sends.rbegin(); one != sends.rend(); ++one) EXPECT_TRUE((*one)->wait(kLong));
    for (const auto& one : receives) EXPECT_TRUE(one->wait(kLong));
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(in[i], std::string(sizes[i], static_cast<char>('a' + (i + 1 - rank) % 26))) << i;
    }
  });
}

// Bytes that come one by one, also those of the size.
TEST(TcpTransport, ATransferMayComeInPieces) {
  OneRank rank;
  char room[3] = {};
  const auto receive = rank.transport->receive(1, room, 3);
  for (const char byte : std::string("\3\0\0\0\0\0\0\0abc", 11)) {
    EXPECT_EQ(text_of([&] { receive->wait(milliseconds(1)); }), "nothing came in time");
    ASSERT_EQ(rank.bare.write_some({&byte, 1}), 1u);
  }
  EXPECT_TRUE(receive->wait(kLong));
  EXPECT_EQ(std::string(room, 3), "abc");
}

TEST(TcpTransport, ATransferOfAnotherSizeIsAnError) {
  for (const int64_t said : {int64_t{5}, int64_t{3}, int64_t{0}, int64_t{-1}, int64_t{1} << 62}) {
    OneRank rank;
    std::string room = "....after";
    const auto receive = rank.transport->receive(1, room.data(), 4);
    const auto next = rank.transport->receive(1, room.data(), 4);
    rank.send_bare(said, "more than the receiver has room for");
    const std::string wrong = text_of([&] { receive->wait(kLong); });
    EXPECT_TRUE(wrong.starts_with("it sent ") && wrong.find("bytes where 4 are due") != wrong.npos)
        << wrong;
    EXPECT_EQ(room.substr(4), "after");
    EXPECT_EQ(text_of([&] { next->wait(kLong); }), wrong);
    EXPECT_EQ(text_of([&] { rank.transport->receive(1, room.data(), 4); }), wrong);
  }
}

// Nothing more comes than the size and a part of the bytes that are due.
TEST(TcpTransport, ATransferThatIsTooShortIsAnErrorAtOnce) {
  OneRank rank;
  std::string room(1000, '.');
  const auto receive = rank.transport->receive(1, room.data(), 1000);
  rank.send_bare(4, "word");
  EXPECT_EQ(text_of([&] { receive->wait(milliseconds(20'000)); }).substr(0, 39),
            "it sent 4 bytes where 1000 are due (all");
}

TEST(TcpTransport, AnEndOfAConnectionIsAnErrorOfThatRankAlone) {
  auto connections = connected_ranks(3);
  TcpTransport first(std::move(connections[0])), third(std::move(connections[2]));
  std::string room(100, '\0');
  const auto broken = first.receive(1, room.data(), 100);
  const int64_t said = 100;
  ASSERT_EQ(connections[1][0].write_some({reinterpret_cast<const char*>(&said), 8}), 8u);
  ASSERT_EQ(connections[1][0].write_some("a half"), 6u);
  connections[1].clear();
  EXPECT_EQ(text_of([&] { broken->wait(kLong); }), "the other end closed it");

  char word[5] = "word", came[5] = {};
  const auto send = third.send(0, word, 5);
  const auto receive = first.receive(2, came, 5);
  EXPECT_TRUE(receive->wait(kLong));
  EXPECT_STREQ(came, "word");
}

// A signal would end this process.
TEST(TcpTransport, SendingToAConnectionThatIsClosedIsAnErrorAndNoSignal) {
  OneRank rank;
  const std::string many(64 << 20, 'x');
  const auto send = rank.transport->send(1, many.data(), std::ssize(many));
  rank.bare = Socket();
  EXPECT_EQ(text_of([&] { send->wait(kLong); }), "the other end closed it");
  EXPECT_EQ(text_of([&] { rank.transport->send(1, many.data(), 1); }), "the other end closed it");
}

TEST(TcpTransport, AnInterruptEndsAWaitAndTheTransferGoesOn) {
  OneRank rank(1);
  char room[4] = {};
  const auto receive = rank.transport->receive(0, room, 4);
  const double begin_s = now_s();
  {
    const std::jthread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      receive->interrupt();
    });
    EXPECT_FALSE(receive->wait(kLong));
  }
  EXPECT_LT(now_s() - begin_s, 20);
  rank.send_bare(4, "late");
  const auto end_s = now_s() + 20;
  while (rank.transport->advance() && now_s() < end_s) {
  }
  EXPECT_TRUE(receive->wait(kLong));
  EXPECT_EQ(std::string(room, 4), "late");
}

TEST(TcpTransport, AWaitEndsAtItsDeadline) {
  OneRank rank;
  char room[4] = {};
  const auto receive = rank.transport->receive(1, room, 4);
  const double begin_s = now_s();
  EXPECT_EQ(text_of([&] { receive->wait(milliseconds(80)); }), "nothing came in time");
  EXPECT_GE(now_s() - begin_s, 0.08);
  EXPECT_LT(now_s() - begin_s, 20);
}

TEST(TcpTransport, AnotherThreadMayCloseIt) {
  OneRank rank;
  char room[4] = {};
  const auto receive = rank.transport->receive(1, room, 4);
  {
    const std::jthread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      rank.transport->close();
    });
    const std::string wrong = text_of([&] { receive->wait(kLong); });
    EXPECT_TRUE(wrong == "it is closed" || wrong == "the other end closed it") << wrong;
  }
  EXPECT_EQ(text_of([&] { rank.transport->receive(1, room, 4); }), "it is closed");
  char byte = 0;
  ASSERT_TRUE(wait_until_ready(rank.bare, false, 10));
  EXPECT_EQ(rank.bare.read_some({&byte, 1}), 0u);
}

// What comes then would be taken for the next transfer's.
TEST(TcpTransport, ATransferThatIsGivenUpEndsItsDirection) {
  OneRank rank;
  char room[4] = {};
  rank.transport->receive(1, room, 4).reset();
  EXPECT_EQ(text_of([&] { rank.transport->receive(1, room, 4); }),
            "a transfer before was given up");
  EXPECT_TRUE(rank.transport->send(1, room, 4)->wait(kLong));
}

// A thread that waits for something else moves bytes by advance() alone.
TEST(TcpTransport, BytesMoveWithoutAWait) {
  run_ranks(2, [&](TcpTransport& transport, size_t rank) {
    const size_t bytes = size_t{20} << 20;
    const auto out = numbered(bytes, rank, 1 - rank);
    std::vector<uint32_t> in(out.size());
    const int peer = static_cast<int>(1 - rank);
    const auto send = transport.send(peer, out.data(), static_cast<int64_t>(bytes));
    const auto receive = transport.receive(peer, in.data(), static_cast<int64_t>(bytes));
    const double end_s = now_s() + 60;
    while (transport.advance() && now_s() < end_s) std::this_thread::yield();
    EXPECT_TRUE(in == numbered(bytes, 1 - rank, rank));
    EXPECT_TRUE(send->wait(milliseconds(0)));
  });
}

}  // namespace
}  // namespace strata::comm
