// Memory orders of the shipped parts under Relacy, two or three threads each. Every kernel runs twice: as shipped,
// where nothing may be found, and with all orders relaxed, where something must be.
#include <cstdio>
#include <memory>
#include <string>

#include "tests/model/relacy/relacy_atomic.hpp"

#include "block/block_protocol.hpp"
#include "queue/block_stack.hpp"
#include "queue/order_ring.hpp"

namespace kvpool::model {
namespace {

/// Each thread pops a block, writes what only its owner may write, and pushes the block back.
template <template <class> class Atom>
struct StackKernel : rl::test_suite<StackKernel<Atom>, 2> {
  std::unique_ptr<BlockProtocol<Atom>> protocol;
  std::unique_ptr<BlockStack<Atom>> stack;
  rl::var<int> content[3];

  void before() {
    protocol = std::make_unique<BlockProtocol<Atom>>(3);
    stack = std::make_unique<BlockStack<Atom>>();
    typename BlockStack<Atom>::Chain chain;
    chain.append(*protocol, 1);
    chain.append(*protocol, 2);
    stack->push(*protocol, chain);
    content[1]($) = 0;
    content[2]($) = 0;
  }
  void thread(unsigned index) {
    for (int round = 0; round < 2; ++round) {
      std::uint32_t block = 0;
      if (stack->pop(*protocol, {&block, 1}) == 0) continue;
      content[block]($) = static_cast<int>(index);
      RL_ASSERT(content[block]($) == static_cast<int>(index));
      typename BlockStack<Atom>::Chain chain;
      chain.append(*protocol, block);
      stack->push(*protocol, chain);
    }
  }
  void after() {
    std::uint32_t blocks[3] = {};
    RL_ASSERT(stack->pop(*protocol, blocks) == 2);
    RL_ASSERT(blocks[0] + blocks[1] == 3 && blocks[0] != blocks[1]);
    stack.reset();
    protocol.reset();
  }
};

/// One producer writes content and puts the block; two consumers take: one of them at most gets it, with the content.
template <template <class> class Atom>
struct RingKernel : rl::test_suite<RingKernel<Atom>, 3> {
  std::unique_ptr<OrderRing<Atom>> ring;
  rl::var<int> content[4];
  rl::atomic<int> takers[4];

  void before() {
    ring = std::make_unique<OrderRing<Atom>>(2);
    for (int i = 0; i < 4; ++i) {
      content[i]($) = 0;
      takers[i]($).store(0, rl::mo_relaxed);
    }
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint32_t block = 1; block <= 2; ++block) {
        content[block]($) = static_cast<int>(block);
        for (;;) {
          const PutOutcome outcome = ring->put(ring->take_positions(1), block);
          if (outcome != PutOutcome::killed) break;
        }
      }
      return;
    }
    for (int round = 0; round < 2; ++round) {
      RingEntry entry;
      std::uint32_t killed = 0;
      if (ring->take({&entry, 1}, killed) == 0 || entry.block == 0) continue;
      RL_ASSERT(content[entry.block]($) == static_cast<int>(entry.block));
      RL_ASSERT(takers[entry.block]($).fetch_add(1, rl::mo_relaxed) == 0);
    }
  }
  void after() { ring.reset(); }
};

struct Verdict {
  bool clean;
  std::string what;
};

template <class Kernel>
Verdict check(unsigned long iterations) {
  rl::test_params params;
  params.iteration_count = iterations;
  params.search_type = rl::random_scheduler_type;
  std::ostream quiet(nullptr);
  params.progress_stream = &quiet;
  params.output_stream = &quiet;
  const bool clean = rl::simulate<Kernel>(params);
  return {clean, rl::test_result_str(params.test_result)};
}

template <template <template <class> class> class Kernel>
bool check_both(const char* name, unsigned long iterations) {
  const Verdict shipped = check<Kernel<RelacyAtomic>>(iterations);
  const Verdict weak = check<Kernel<WeakRelacyAtomic>>(iterations);
  std::printf("%-8s %lu executions: as shipped %s; all relaxed: %s\n", name, iterations,
              shipped.clean ? "clean" : shipped.what.c_str(), weak.clean ? "NOT FOUND" : weak.what.c_str());
  return shipped.clean && !weak.clean;
}

}  // namespace
}  // namespace kvpool::model

int main(int argc, char** argv) {
  const unsigned long iterations = argc > 1 ? std::stoul(argv[1]) : 20000;
  bool ok = kvpool::model::check_both<kvpool::model::StackKernel>("stack", iterations);
  ok &= kvpool::model::check_both<kvpool::model::RingKernel>("ring", iterations);
  return ok ? 0 : 1;
}
