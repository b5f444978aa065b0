// Kernels over numbered records and what is installed on first use: who sees a number or a pointer sees what it leads
// to.
#pragma once

#include <array>
#include <memory>

#include "tests/model/relacy/relacy_atomic.hpp"

#include "block/block_protocol.hpp"
#include "pool/basic_block_pool.hpp"
#include "pool/numbered_records.hpp"
#include "pool/secondary_keys.hpp"
#include "pool/shard_counters.hpp"
#include "tests/model/relacy/content_kernels.hpp"

namespace kvpool::model {

/// A record is recycled while another thread reads it: it sees one life of it or none.
struct RecycleKernel : rl::test_suite<RecycleKernel, 2> {
  using Store = SecondaryKeys<RelacyAtomic>;
  std::unique_ptr<Store> store;
  std::uint32_t record = 0;

  static Store::View life(std::uint32_t number) {
    Store::View view;
    view.key.digest = {number, number, number, number};
    view.key.shape = view.block = view.version = number;
    view.ordinal = number;
    return view;
  }
  void before() {
    store = std::make_unique<Store>(1);
    record = *store->acquire();
    store->fill(record, life(1));
  }
  void thread(unsigned number) {
    if (number == 0) {
      store->release(record);
      RL_ASSERT(store->acquire() == record);
      store->fill(record, life(2));
      return;
    }
    for (int attempt = 0; attempt < 4; ++attempt) {
      const auto view = store->read(record);
      if (!view) continue;
      const Store::View whole = life(view->version);
      RL_ASSERT(view->key == whole.key && view->block == whole.block && view->ordinal == whole.ordinal);
    }
  }
  void after() { store.reset(); }
};

/// Each thread pops a free record, writes what only its owner may write, and pushes it back: links as well as what was
/// written are seen by who pops next.
struct FreeRecordsKernel : rl::test_suite<FreeRecordsKernel, 2> {
  struct Record {
    RelacyAtomic<std::uint32_t> next;
    rl::var<int> content;
  };
  using Free = FreeRecords<RelacyAtomic>;
  std::unique_ptr<std::array<Record, 3>> records;
  std::unique_ptr<Free> free;

  void before() {
    records = std::make_unique<std::array<Record, 3>>();
    free = std::make_unique<Free>();
    for (std::uint32_t i = 0; i < 3; ++i) {
      (*records)[i].content($) = 0;
      free->push(*records, i, i);
    }
  }
  void thread(unsigned number) {
    for (int round = 0; round < 2; ++round) {
      const auto first = free->pop(*records);
      const auto second = free->pop(*records);
      for (const auto& record : {first, second}) {
        if (!record) continue;
        (*records)[*record].content($) = static_cast<int>(number);
        RL_ASSERT((*records)[*record].content($) == static_cast<int>(number));
      }
      for (const auto& record : {first, second}) {
        if (record) free->push(*records, *record, *record);
      }
    }
  }
  void after() {
    std::array<bool, 3> seen{};
    for (int i = 0; i < 3; ++i) {
      const auto record = free->pop(*records);
      RL_ASSERT(record && !seen[*record]);
      seen[*record] = true;
    }
    RL_ASSERT(!free->pop(*records));
    free.reset();
    records.reset();
  }
};

/// Two threads add the first records at the same time: one of them makes the storage, both find it made.
struct StorageKernel : rl::test_suite<StorageKernel, 2> {
  struct Record {
    Record() { made($) = 1; }
    rl::var<int> made;
  };
  using Records = NumberedRecords<RelacyAtomic, Record>;
  std::unique_ptr<Records> records;
  std::array<std::uint32_t, 2> numbers{};

  void before() { records = std::make_unique<Records>(); }
  void thread(unsigned number) {
    numbers[number] = *records->add();
    RL_ASSERT((*records)[numbers[number]].made($) == 1);
  }
  void after() {
    RL_ASSERT(numbers[0] + numbers[1] == 1);
    records.reset();
  }
};

/// One thread adds a reference to a shared block, another one gives a reference to such a block back; the holder of
/// both who sees both counted sees both references.
struct SharingKernel : rl::test_suite<SharingKernel, 3> {
  static constexpr std::uint32_t kPinned = 1;
  static constexpr std::uint32_t kReleased = 2;
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<ShardCounters<RelacyAtomic>> counters;

  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(3);
    counters = std::make_unique<ShardCounters<RelacyAtomic>>();
    for (const std::uint32_t block : {kPinned, kReleased}) protocol->claim_owned(block);
    pin(kReleased);
  }
  void pin(std::uint32_t block) {
    BlockState seen = protocol->state(block);
    RL_ASSERT(protocol->try_reference(block, seen));
  }
  void thread(unsigned number) {
    if (number == 0) {
      pin(kPinned);
      counters->add_visibly<&PoolFlows::shared_pins>(1);
    } else if (number == 1) {
      FixedTickets none{0};
      RL_ASSERT(protocol->release(
                    kReleased, [] { return ReleaseTarget::order_if_hashed; }, none, none) ==
                ReleaseOutcome::still_referenced);
      counters->add_visibly<&PoolFlows::shared_releases>(1);
    } else {
      bool counted = false;
      for (int attempt = 0; attempt < kAttempts && !counted; ++attempt) counted = counters->sharing_changes() == 2;
      if (!counted) return;
      RL_ASSERT(protocol->state(kPinned).refs() == 2 && protocol->state(kReleased).refs() == 1);
    }
  }
  void after() {
    counters.reset();
    protocol.reset();
  }
};

/// The whole pool, whose store of secondary keys and whose fence queue are made by whoever needs them first, while
/// another thread needs them too, and a third one meets what stands in them. As shipped only: where a part is not
/// found, the process ends.
struct FirstUseKernel : rl::test_suite<FirstUseKernel, 3> {
  struct Here {
    static std::uint32_t hint() noexcept { return 0; }
  };
  using Pool = BasicBlockPool<RelacyAtomic, Here>;
  static constexpr int kPatience = 3'000;  ///< looks, while the storage of records is made
  std::unique_ptr<Pool> pool;
  std::unique_ptr<RelacyAtomic<int>> published;  ///< orders nothing
  std::array<BlockId, 2> blocks{};

  static BlockKey further_key(unsigned number) { return kernel_key(static_cast<std::uint8_t>(10 + number)).key(); }
  void before() {
    BlockPoolOptions options;
    options.num_blocks = 3;
    options.num_shards = 1;
    options.ring_slots = 4;
    options.index_buckets = 2;
    options.enable_stats = false;
    pool = std::make_unique<Pool>(options);
    published = std::make_unique<RelacyAtomic<int>>();
    RL_ASSERT(pool->get_new_blocks(blocks));
    for (std::uint8_t i = 0; i < 2; ++i) RL_ASSERT(pool->publish(blocks[i], kernel_key(i).key(), 4));
  }
  void look_up(unsigned number) {
    const auto found = pool->find(further_key(number));
    RL_ASSERT(!found || found->id == blocks[number]);
  }
  void thread(unsigned number) {
    if (number == 2) {
      for (int i = 0; i < kPatience && published->load(std::memory_order_relaxed) == 0; ++i) {
      }
      look_up(0);
      look_up(1);
      return;
    }
    RL_ASSERT(pool->publish(blocks[number], further_key(number), 4));
    published->store(1, std::memory_order_relaxed);
    look_up(1 - number);
    if (number == 0) {
      RL_ASSERT(pool->free_blocks(std::span(blocks).first(1), 5));
    } else {
      RL_ASSERT(pool->free_blocks(std::span(blocks).last(1)));
    }
  }
  void after() {
    for (unsigned number = 0; number < 2; ++number) RL_ASSERT(pool->find(further_key(number))->id == blocks[number]);
    RL_ASSERT(pool->counts().fenced == 1 && pool->num_free_blocks() == 1);
    pool.reset();
    published.reset();
  }
};

}  // namespace kvpool::model
