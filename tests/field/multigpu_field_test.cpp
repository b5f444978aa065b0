// Failures from the field: memory profiling (F043-F051) and several ranks (F052-F056).
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "../multigpu/fake_storage.hpp"
#include "../multigpu/scripted_device.hpp"
#include "../multigpu/thread_ranks.hpp"
#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/multigpu/block_transfer.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::DeviceProbe;
using testing::FakeStorage;
using testing::kGiB;
using testing::on_thread_ranks;
using testing::ScriptedDevice;
using testing::Stages;

TEST(FieldProfiling, F043AnotherProcessIsNotSubtractedTwice) {
  ScriptedDevice device;
  device.others = 20 * kGiB;
  Stages stages;
  stages.on_load = [&] { device.pool = 6 * kGiB; };
  ProfileRequest request;
  request.utilization = 0.5;
  DeviceProbe probe(device);
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 26 * kGiB);
}

TEST(FieldProfiling, F044PageCacheIsNoDeviceUse) {
  ScriptedMemoryProbe probe(MemoryKind::device, true);
  probe.now.runtime_total = 120 * kGiB;
  probe.now.runtime_free = 100 * kGiB;
  probe.now.host_available = 100 * kGiB;
  Stages stages;
  stages.on_load = [&] {
    probe.now.runtime_free = 20 * kGiB;  // 40 of weights, 40 of page cache
    probe.now.host_available = 60 * kGiB;
  };
  ProfileRequest request;
  request.utilization = 0.75;
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->peak_bytes, 40 * kGiB);
  EXPECT_EQ(profile->available_bytes, 50 * kGiB);

  probe.now.host_available = 100 * kGiB;
  request.utilization = 0.25;  // the weights alone are more
  const auto negative = determine_available_memory(probe, stages, request);
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.error().code, ErrorCode::out_of_memory);
}

TEST(FieldProfiling, F045GraphsAreReservedAndTransientsAreNot) {
  ScriptedDevice device;
  device.total = 60 * kGiB;
  Stages stages;
  stages.on_load = [&] { device.pool = 10 * kGiB; };
  stages.on_run = [&] { device.pool = 14 * kGiB; };
  stages.on_capture = [&] {
    device.pool_transient(3 * kGiB);
    device.graphs = 2 * kGiB;
  };
  ProfileRequest request;
  request.utilization = 1.0;
  request.graph_estimate_bytes = 5 * kGiB;
  DeviceProbe probe(device);
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 44 * kGiB);
  EXPECT_EQ(profile->ledger.graphs, 2 * kGiB);
  EXPECT_EQ(profile->ledger.graphs_estimate, 5 * kGiB);
  const std::int64_t held = device.pool + device.graphs + profile->available_bytes;
  EXPECT_LE(held, profile->ledger.utilization_limit);
}

TEST(FieldProfiling, F046TheCommunicatorComesFirst) {
  const std::int64_t buffers = 5 * kGiB;
  const auto blocks = [&](bool communicator_first) {
    ScriptedDevice device;
    Stages stages;
    stages.on_warm_up = [&] { device.outside += communicator_first ? buffers : 0; };
    stages.on_load = [&] { device.pool = 10 * kGiB; };
    ProfileRequest request;
    request.utilization = 0.9;
    DeviceProbe probe(device);
    const auto profile = determine_available_memory(probe, stages, request);
    return blocks_that_fit({}, profile->available_bytes, 1 << 21U);
  };
  EXPECT_EQ(blocks(false) - blocks(true), buffers / (1 << 21U));
}

TEST(FieldProfiling, F047CustomAllocatorsShowInDeviceFigures) {
  const auto available = [](bool custom) {
    ScriptedDevice device;
    device.outside = kGiB;
    Stages stages;
    stages.on_load = [&] { (custom ? device.outside : device.pool) += 10 * kGiB; };
    stages.on_run = [&] {
      if (stages.runs == 1) (custom ? device.outside : device.pool) += 2 * kGiB;
    };
    DeviceProbe probe(device);
    return determine_available_memory(probe, stages, {})->available_bytes;
  };
  EXPECT_EQ(available(true), available(false));
}

TEST(FieldProfiling, F048WakingUpSaysHowMuchIsMissing) {
  ScriptedDevice device;
  DeviceProbe probe(device);
  const std::int64_t pool = 40 * kGiB;
  ASSERT_TRUE(check_room(probe, pool, 0).ok());
  device.outside = device.total / 2;  // kept by another allocator while the pool slept
  const Status status = check_room(probe, pool, 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(status.error().message.find(std::to_string(8 * kGiB) + " bytes are missing"), std::string::npos)
      << status.error().message;
}

TEST(FieldProfiling, F049AnExplicitSizeIsHonoured) {
  const std::int64_t page = 2LL * 16 * 8 * 128 * 2 * 28;
  ASSERT_EQ(page, 1'835'008);
  EXPECT_EQ(blocks_that_fit({std::nullopt, kGiB}, 27 * kGiB, page), 585);
  EXPECT_LE(585 * page, kGiB);
  EXPECT_EQ(blocks_that_fit({100, kGiB}, 27 * kGiB, page), 100);
  EXPECT_EQ(blocks_that_fit({}, 10 * page, page), 10);
  EXPECT_EQ(blocks_that_fit({}, -1, page), 0);

  ScriptedDevice device;
  DeviceProbe probe(device);
  Stages stages;
  ProfileRequest request;
  request.explicit_kv_bytes = kGiB;
  EXPECT_EQ(determine_available_memory(probe, stages, request)->available_bytes, kGiB);
  EXPECT_EQ(stages.runs, 1) << "the profile still informs";
}

TEST(FieldProfiling, F050ASliceIsNotTheWholeCard) {
  for (const bool permitted : {true, false}) {
    ScriptedMemoryProbe probe(MemoryKind::device, false, "MIG-377e0b1c-5a4f-5d2c-9f0e-2f1d6c1a7b11");
    probe.now.runtime_total = 16 * kGiB;
    probe.now.runtime_free = 16 * kGiB;
    if (permitted) probe.now.management_total = 141 * kGiB;
    Stages stages;
    const auto profile = determine_available_memory(probe, stages, {});
    ASSERT_TRUE(profile.ok()) << profile.error().message;
    EXPECT_EQ(profile->ledger.total, 16 * kGiB);
    EXPECT_EQ(profile->ledger.total_source, "runtime");
    EXPECT_LE(profile->available_bytes, 16 * kGiB);
    EXPECT_EQ(profile->ledger.notes.empty(), false) << "what is missing or contradicts is said";
    EXPECT_FALSE(profile->ledger.other_processes.has_value());
  }
}

TEST(FieldProfiling, F051EachFigureMayBeMissing) {
  using Member = std::optional<std::int64_t> MemoryReading::*;
  const Member members[] = {&MemoryReading::runtime_total,   &MemoryReading::management_total,
                            &MemoryReading::host_available,  &MemoryReading::own_process,
                            &MemoryReading::other_processes, &MemoryReading::pool_reserved,
                            &MemoryReading::pool_used,       &MemoryReading::pool_reserved_peak,
                            &MemoryReading::pool_used_peak,  &MemoryReading::graph_reserved};
  for (std::size_t missing = 0; missing < std::size(members); ++missing) {
    struct Probe final : MemoryProbe {
      ScriptedDevice device;
      Member without = nullptr;
      std::string device_name() const override { return "device 0"; }
      MemoryKind kind() const noexcept override { return MemoryKind::device; }
      MemoryReading read() override {
        MemoryReading reading = device.reading();
        reading.*without = std::nullopt;
        return reading;
      }
      void reset_peaks() override { device.pool_peak = device.pool; }
    } probe;
    probe.without = members[missing];
    probe.device.outside = kGiB;
    Stages stages;
    stages.on_load = [&] { probe.device.pool = 10 * kGiB; };
    stages.on_run = [&] { probe.device.pool = 14 * kGiB; };
    stages.on_capture = [&] { probe.device.graphs = kGiB; };
    ProfileRequest request;
    request.utilization = 0.75;
    const auto profile = determine_available_memory(probe, stages, request);
    ASSERT_TRUE(profile.ok()) << missing << ": " << profile.error().message;
    // Without the figure of the process its context cannot be told from others' memory: 1 more for KV.
    const bool blind = members[missing] == &MemoryReading::own_process;
    EXPECT_EQ(profile->available_bytes, (blind ? 33 : 32) * kGiB) << missing;
    EXPECT_EQ(profile->ledger.estimated, blind) << missing;
  }
}

AgreementOptions quick() {
  AgreementOptions options;
  options.deadline = 5s;
  return options;
}

TEST(FieldRanks, F052OneSizeForAllRanks) {
  const std::int64_t big = std::int64_t{1} << 33U;
  const std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> cases = {
      {{2111, 2055}, 2055}, {{512, 510}, 510}, {{big, big + 1}, big}, {{7, 7, 0, 7}, 0}, {{9, -1}, 0}};
  for (const auto& [limits, expected] : cases) {
    std::vector<std::string> errors(limits.size());
    on_thread_ranks(static_cast<int>(limits.size()), [&, &limits = limits, &expected = expected](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      FakeStorage storage;
      const auto agreement = RankCoordinator(comm, quick()).agree(testing::view_of(limits[rank]), storage);
      if (expected > 0) {
        ASSERT_TRUE(agreement.ok()) << agreement.error().message;
        EXPECT_EQ(agreement->num_blocks, std::vector{expected});
        EXPECT_EQ(storage.held, std::vector{expected});
        return;
      }
      ASSERT_FALSE(agreement.ok());
      errors[rank] = testing::to_text(agreement.error());
      EXPECT_EQ(storage.attempts, 0) << "none allocates";
    });
    for (const auto& error : errors) EXPECT_EQ(error, errors[0]);
  }
}

TEST(FieldRanks, F053PageBytesAreThoseOfOneRank) {
  const auto page = [](std::int64_t ranks) {
    FullAttentionSpec spec;
    spec.block_size = 16;
    spec.shape.num_kv_heads = std::max<std::int64_t>(1, 8 / ranks);
    spec.shape.head_size = 128;
    spec.shape.dtype = DType::float16;
    return page_size_bytes(spec);
  };
  EXPECT_EQ(page(1), 65'536);
  EXPECT_EQ(page(2), 32'768);
  EXPECT_EQ(page(8), 8'192);
  EXPECT_EQ(page(16), 8'192);
  // A fixed budget per rank holds as many more blocks, and is not divided by the ranks once more.
  EXPECT_EQ(blocks_that_fit({}, kGiB, page(8)), 8 * blocks_that_fit({}, kGiB, page(1)));
}

std::vector<NamedLayer> stage_layers(std::string_view kinds, int first) {
  std::vector<NamedLayer> layers;
  for (const char kind : kinds) {
    const std::string name = (kind == 'f' ? "f" : "s") + std::to_string(first++);
    LayerSpec spec;
    if (kind == 'f') {
      spec = FullAttentionSpec{};
    } else {
      SlidingWindowSpec window;
      window.sliding_window = 128;
      spec = window;
    }
    layers.push_back({name, spec});
  }
  return layers;
}

TEST(FieldRanks, F054PipelineStagesShareOneGroupTable) {
  for (const auto& [first, second] : {std::pair<std::string, std::string>{std::string(10, 'f') + std::string(11, 's'),
                                                                          std::string(11, 'f') + std::string(10, 's')},
                                      {"fss", "fss"}}) {
    const std::vector<std::vector<NamedLayer>> stages = {stage_layers(first, 0),
                                                         stage_layers(second, static_cast<int>(first.size()))};
    std::vector<NamedLayer> all = stages[0];
    all.insert(all.end(), stages[1].begin(), stages[1].end());
    const auto merged = get_kv_cache_groups(all);
    ASSERT_TRUE(merged.ok()) << merged.error().message;
    if (first == "fss") {
      EXPECT_EQ(merged->size(), 3U);
    }

    on_thread_ranks(2, [&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      const auto local = project_groups(*merged, stages[rank]);
      ASSERT_EQ(local.size(), merged->size()) << "one table for all stages";
      std::vector<std::pair<std::string, KVCacheSpec>> mine;
      for (const auto& layer : stages[rank]) {
        mine.emplace_back(layer.name, std::visit([](const auto& spec) { return KVCacheSpec(spec); }, layer.spec));
      }
      RankView view = testing::view_of(500 + comm.rank());
      view.layout = canonical_layout(*merged, LayoutContext{});
      view.local_part = check_local_part(mine, *merged);
      EXPECT_TRUE(view.local_part.ok()) << view.local_part.error().message;
      FakeStorage storage;
      const auto agreement = RankCoordinator(comm, quick()).agree(view, storage);
      ASSERT_TRUE(agreement.ok()) << agreement.error().message;
      EXPECT_EQ(agreement->num_blocks, std::vector<std::int64_t>{500});
    });
  }
}

TEST(FieldRanks, F054AStageWithALayerNobodyKnowsIsNamed) {
  const auto merged = get_kv_cache_groups(stage_layers("fss", 0));
  ASSERT_TRUE(merged.ok());
  const auto outcomes = on_thread_ranks(2, [&](Communicator& comm) {
    RankView view = testing::view_of(10);
    if (comm.rank() == 1) {
      const std::vector<std::pair<std::string, KVCacheSpec>> mine = {{"x9", FullAttentionSpec{}}};
      view.local_part = check_local_part(mine, *merged);
    }
    FakeStorage storage;
    const auto agreement = RankCoordinator(comm, quick()).agree(view, storage);
    ASSERT_FALSE(agreement.ok());
    EXPECT_EQ(agreement.error().rank, 1);
    EXPECT_NE(agreement.error().message.find("layer x9 is in no group"), std::string::npos);
  });
}

/// What rank 1 does instead of taking part.
enum class Misfortune { throws, exits, late, never_comes };

TEST(FieldRanks, F055OneRankFailsAndNobodyHangs) {
  constexpr auto kDeadline = 1000ms;
  for (const Misfortune misfortune :
       {Misfortune::throws, Misfortune::exits, Misfortune::late, Misfortune::never_comes}) {
    for (const int world : {2, 4}) {
      const auto start = std::chrono::steady_clock::now();
      on_thread_ranks(world, [&](Communicator& comm) {
        AgreementOptions options;
        options.deadline = kDeadline;
        RankView view = testing::view_of(100);
        if (comm.rank() == 1) {
          if (misfortune == Misfortune::exits || misfortune == Misfortune::never_comes) return;
          if (misfortune == Misfortune::late) std::this_thread::sleep_for(kDeadline / 2);
          if (misfortune == Misfortune::throws) view.profiling = {ErrorCode::out_of_memory, "out of memory in init"};
        }
        FakeStorage storage;
        const auto agreement = RankCoordinator(comm, options).agree(view, storage);
        if (misfortune == Misfortune::late) {
          EXPECT_TRUE(agreement.ok()) << agreement.error().message;
          return;
        }
        ASSERT_FALSE(agreement.ok());
        EXPECT_EQ(agreement.error().rank, 1) << agreement.error().message;
        EXPECT_TRUE(storage.held.empty());
      });
      EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline + 1000ms);
    }
  }
}

TEST(FieldRanks, F056BlocksMoveBetweenPoolsOfDifferentSize) {
  const auto pair = [](std::uint32_t source, std::uint32_t destination) {
    return BlockPair{BlockId{source}, BlockId{destination}};
  };
  const std::vector<BlockPair> moves = {pair(97, 3), pair(98, 19), pair(99, 1)};
  EXPECT_TRUE(check_block_pairs(moves, 100, 20).ok());
  EXPECT_EQ(check_block_pairs(moves, 99, 20).error().code, ErrorCode::unknown_block);
  EXPECT_EQ(check_block_pairs(moves, 100, 19).error().code, ErrorCode::unknown_block);
  const std::vector<BlockPair> null_block = {pair(0, 3)};
  EXPECT_EQ(check_block_pairs(null_block, 100, 20).error().code, ErrorCode::unknown_block);
  const std::vector<BlockPair> twice = {pair(1, 3), pair(2, 3)};
  EXPECT_EQ(check_block_pairs(twice, 100, 20).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kvpool
