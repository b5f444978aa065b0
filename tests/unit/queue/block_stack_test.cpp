#include "queue/block_stack.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace kvpool {
namespace {

using Protocol = BlockProtocol<std::atomic>;
using Stack = BlockStack<std::atomic>;

Stack::Chain chain_of(Protocol& protocol, std::initializer_list<std::uint32_t> blocks) {
  Stack::Chain chain;
  for (const std::uint32_t block : blocks) chain.append(protocol, block);
  return chain;
}

std::vector<std::uint32_t> pop(Stack& stack, Protocol& protocol, std::size_t count) {
  std::vector<std::uint32_t> out(count);
  out.resize(stack.pop(protocol, out));
  return out;
}

TEST(BlockStack, ChainKeepsItsOrderOnTop) {
  Protocol protocol(10);
  Stack stack;
  stack.push(protocol, chain_of(protocol, {1, 2, 3}));
  stack.push(protocol, chain_of(protocol, {7, 5}));
  EXPECT_EQ(pop(stack, protocol, 3), (std::vector<std::uint32_t>{7, 5, 1}));
  EXPECT_EQ(stack.count_hint(), 2);
  EXPECT_EQ(pop(stack, protocol, 9), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_TRUE(pop(stack, protocol, 1).empty());
}

TEST(BlockStack, EmptyChainAndEmptyRequestChangeNothing) {
  Protocol protocol(4);
  Stack stack;
  stack.push(protocol, Stack::Chain{});
  EXPECT_TRUE(pop(stack, protocol, 2).empty());
  stack.push(protocol, chain_of(protocol, {3}));
  EXPECT_TRUE(pop(stack, protocol, 0).empty());
  EXPECT_EQ(pop(stack, protocol, 1), (std::vector<std::uint32_t>{3}));
}

TEST(BlockStack, ThreadsNeverHoldTheSameBlock) {
  constexpr std::uint32_t kBlocks = 33;
  Protocol protocol(kBlocks);
  Stack stack;
  Stack::Chain all;
  for (std::uint32_t block = 1; block < kBlocks; ++block) all.append(protocol, block);
  stack.push(protocol, all);
  std::array<std::uint64_t, kBlocks> owner{};  // plain: a doubled block is a race and a wrong value
  std::array<int, 3> wrong{};
  std::array<std::thread, 3> threads;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&, t] {
      for (std::uint64_t i = 1; i <= 5'000; ++i) {
        const auto mine = pop(stack, protocol, 1 + i % 7);
        for (const std::uint32_t block : mine) owner[block] = (t << 32U) | i;
        Stack::Chain back;
        for (const std::uint32_t block : mine) {
          if (owner[block] != ((t << 32U) | i)) ++wrong[t];
          back.append(protocol, block);
        }
        stack.push(protocol, back);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 3>{}));
  EXPECT_EQ(pop(stack, protocol, kBlocks).size(), kBlocks - 1);
}

}  // namespace
}  // namespace kvpool
