// Each failure of memory profiling that was reported from the field, over a device made of numbers.
#include <gtest/gtest.h>

#include "kvpool/multigpu/memory_profile.hpp"
#include "scripted_device.hpp"

namespace kvpool {
namespace {

using testing::DeviceProbe;
using testing::kGiB;
using testing::ScriptedDevice;
using testing::Stages;

/// Context 1, communicator 2, weights 10, activations 4 (pool), graphs 1, others 3, on a device of 64.
struct Ordinary {
  ScriptedDevice device;
  Stages stages;
  ProfileRequest request;

  Ordinary() {
    device.outside = kGiB;
    device.others = 3 * kGiB;
    request.utilization = 0.75;  // limit 48
    stages.on_warm_up = [this] { device.outside = 3 * kGiB; };
    stages.on_load = [this] { device.pool = 10 * kGiB; };
    stages.on_run = [this] { device.pool = std::max(device.pool, 14 * kGiB); };
    stages.on_capture = [this] { device.graphs = kGiB; };
  }

  Result<MemoryProfile> profile() {
    DeviceProbe probe(device);
    return determine_available_memory(probe, stages, request);
  }
};

TEST(MemoryProfile, GivesEveryByteAName) {
  Ordinary ordinary;
  ordinary.request.safety_bytes = kGiB / 2;
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  const MemoryLedger& ledger = profile->ledger;
  EXPECT_EQ(ledger.total, 64 * kGiB);
  EXPECT_EQ(ledger.total_source, "runtime");
  EXPECT_EQ(ledger.utilization_limit, 48 * kGiB);
  EXPECT_EQ(ledger.context, kGiB);
  EXPECT_EQ(ledger.communicator, 2 * kGiB);
  EXPECT_EQ(ledger.weights, 10 * kGiB);
  EXPECT_EQ(ledger.peak_activations, 4 * kGiB);
  EXPECT_EQ(ledger.graphs, kGiB);
  EXPECT_EQ(ledger.other_processes, 3 * kGiB);
  EXPECT_EQ(ledger.unknown, 0) << "measured, not assumed";
  EXPECT_EQ(profile->peak_bytes, 18 * kGiB);
  EXPECT_EQ(profile->non_pool_bytes, 4 * kGiB);
  EXPECT_EQ(profile->available_bytes, 30 * kGiB);
  EXPECT_EQ(ledger.unused, 64 * kGiB - 18 * kGiB - 3 * kGiB - 30 * kGiB - kGiB / 2);
  EXPECT_EQ(testing::sum_of_lines(ledger), ledger.total);
  EXPECT_FALSE(ledger.estimated);
}

TEST(MemoryProfile, WhatNobodyOwnsIsUnknownAndNotZero) {
  Ordinary ordinary;
  ordinary.device.driver = kGiB / 4;
  const auto with_driver = ordinary.profile();
  ASSERT_TRUE(with_driver.ok());
  EXPECT_EQ(with_driver->ledger.unknown, kGiB / 4);
  EXPECT_EQ(testing::sum_of_lines(with_driver->ledger), 64 * kGiB);

  Ordinary blind;
  blind.device.others_known = false;
  const auto no_others = blind.profile();
  ASSERT_TRUE(no_others.ok());
  EXPECT_FALSE(no_others->ledger.other_processes.has_value());
  EXPECT_EQ(no_others->ledger.unknown, 3 * kGiB);
  const std::string table = format_ledger(no_others->ledger);
  const auto line = table.find("other_processes");
  ASSERT_NE(line, std::string::npos);
  EXPECT_NE(table.substr(line, table.find('\n', line) - line).find("unknown"), std::string::npos) << table;
}

TEST(MemoryProfile, AnotherProcessThatReleasesMemoryIsNoFailure) {
  Ordinary ordinary;
  ordinary.stages.on_run = [&] {
    ordinary.device.pool = 14 * kGiB;
    ordinary.device.others = 0;
  };
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 30 * kGiB) << "own figures do not move with others";
}

TEST(MemoryProfile, AReleaseIsMeasuredAgainWhenOwnUseIsUnknown) {
  Ordinary ordinary;
  ordinary.device.own_process_known = false;
  ordinary.stages.on_run = [&] {
    ordinary.device.pool = 14 * kGiB;
    if (ordinary.stages.runs == 2) ordinary.device.others = 0;
  };
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->attempts, 2);
  EXPECT_EQ(profile->ledger.peak_activations, 4 * kGiB);
  EXPECT_TRUE(profile->ledger.estimated);
  EXPECT_EQ(profile->available_bytes, 48 * kGiB - (2 + 10 + 4 + 1) * kGiB);
}

TEST(MemoryProfile, MemoryThatKeepsMovingIsRefusedWithBothReadings) {
  Ordinary ordinary;
  ordinary.device.own_process_known = false;
  ordinary.stages.on_run = [&] {
    ordinary.device.pool = 14 * kGiB;
    ordinary.device.others += kGiB;
  };
  const auto profile = ordinary.profile();
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.error().code, ErrorCode::environment);
  EXPECT_EQ(ordinary.stages.runs, 2 * ordinary.request.max_attempts);
  const auto& message = profile.error().message;
  EXPECT_NE(message.find(std::to_string((64 - 3 - 14 - 7) * kGiB)), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string((64 - 3 - 14 - 9) * kGiB)), std::string::npos) << message;
}

TEST(MemoryProfile, TwoServersStartedTogetherDoNotShrinkEachOther) {
  // Each is told half of the device and takes 6 beside KV, while the other grows by 8 during profiling.
  Ordinary ordinary;
  ordinary.request.utilization = 0.5;
  ordinary.device.others = kGiB;
  ordinary.stages.on_load = [&] {
    ordinary.device.pool = 2 * kGiB;
    ordinary.device.others += 4 * kGiB;
  };
  ordinary.stages.on_run = [&] {
    ordinary.device.pool = 3 * kGiB;
    ordinary.device.others += 4 * kGiB;
  };
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 32 * kGiB - (1 + 2 + 3 + 1) * kGiB);
}

TEST(MemoryProfile, TheFreeMemoryAtTheEndBoundsThePool) {
  // Someone else took memory after the first reading: the pool must fit into what is left.
  Ordinary ordinary;
  ordinary.stages.on_capture = [&] {
    ordinary.device.graphs = kGiB;
    ordinary.device.others = 30 * kGiB;
  };
  ordinary.request.safety_bytes = kGiB;
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->free_bytes, (64 - 30 - 18) * kGiB);
  EXPECT_EQ(profile->available_bytes, profile->free_bytes - kGiB);
}

TEST(MemoryProfile, MemoryTheAllocatorGaveBackIsReservedForTheNextPeak) {
  Ordinary ordinary;
  ordinary.request.utilization = 0.9;
  ordinary.device.others = 3 * kGiB;
  ordinary.stages.on_run = [&] { ordinary.device.pool_transient(30 * kGiB); };  // trimmed after the run
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->ledger.peak_activations, 30 * kGiB);
  EXPECT_LE(profile->available_bytes, profile->free_bytes - 30 * kGiB);
}

TEST(MemoryProfile, GraphsAreMeasuredAndNeverExtrapolated) {
  Ordinary ordinary;
  ordinary.request.graph_estimate_bytes = 118 * kGiB;
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->ledger.graphs, kGiB);
  EXPECT_EQ(profile->ledger.graphs_estimate, 118 * kGiB);
  EXPECT_NE(format_ledger(profile->ledger).find("graphs were estimated at"), std::string::npos);

  Ordinary no_counter;
  no_counter.device.graphs_known = false;
  no_counter.stages.on_capture = [&] {
    no_counter.device.graphs = kGiB;
    no_counter.device.pool += 2 * kGiB;  // left by a transient of the capture, serves activations later
  };
  const auto by_difference = no_counter.profile();
  ASSERT_TRUE(by_difference.ok());
  EXPECT_EQ(by_difference->ledger.graphs, kGiB);
}

TEST(MemoryProfile, LazyBuffersOfTheFirstCollectiveAreTheCommunicators) {
  Ordinary eager;
  Ordinary lazy;
  lazy.stages.on_warm_up = [&] { lazy.device.outside = 7 * kGiB; };
  const auto with_little = eager.profile();
  const auto with_much = lazy.profile();
  ASSERT_TRUE(with_little.ok() && with_much.ok());
  EXPECT_EQ(with_much->ledger.communicator, 6 * kGiB);
  EXPECT_EQ(with_little->available_bytes - with_much->available_bytes, 4 * kGiB);
}

TEST(MemoryProfile, WorkSpaceThatGrowsDuringTheRunIsContext) {
  Ordinary ordinary;
  ordinary.stages.on_run = [&] {
    ordinary.device.pool = 14 * kGiB;
    ordinary.device.outside = 5 * kGiB;
  };
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->ledger.context, 3 * kGiB);
  EXPECT_EQ(profile->available_bytes, 28 * kGiB);
}

TEST(MemoryProfile, WeightsServedFromMemoryTheProcessHeldAreNoContext) {
  Ordinary ordinary;
  ordinary.device.outside = 6 * kGiB;  // of which the allocator will take 3 over
  ordinary.stages.on_warm_up = [] {};
  ordinary.stages.on_load = [&] {
    ordinary.device.pool = 10 * kGiB;
    ordinary.device.outside = 3 * kGiB;
  };
  const auto profile = ordinary.profile();
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->ledger.weights, 10 * kGiB);
  EXPECT_EQ(profile->ledger.context, 3 * kGiB);
  EXPECT_EQ(profile->peak_bytes, 18 * kGiB);
  EXPECT_EQ(testing::sum_of_lines(profile->ledger), profile->ledger.total);
}

TEST(MemoryProfile, AZeroFromTheManagementLibraryIsUnknown) {
  // In a container the library lists process ids of the host, does not find ours, and says 0.
  ScriptedMemoryProbe probe;
  MemoryReading reading;
  reading.runtime_total = 64 * kGiB;
  reading.runtime_free = 44 * kGiB;
  reading.own_process = 0;
  reading.pool_reserved = reading.pool_used = reading.pool_reserved_peak = reading.pool_used_peak = 12 * kGiB;
  probe.now = reading;
  Stages stages;
  ProfileRequest request;
  request.utilization = 0.5;
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_TRUE(profile->ledger.estimated);
  EXPECT_EQ(profile->ledger.unknown, 20 * kGiB) << "what was in use before is nobody's for sure";
  EXPECT_FALSE(profile->ledger.context.has_value());
}

TEST(MemoryProfile, UnifiedMemoryCountsWhatIsAvailable) {
  ScriptedMemoryProbe probe(MemoryKind::device, true);
  probe.now.runtime_total = 120 * kGiB;
  probe.now.runtime_free = 60 * kGiB;
  probe.now.host_available = 100 * kGiB;
  Stages stages;
  stages.on_load = [&] {
    probe.now.host_available = 60 * kGiB;
    probe.now.runtime_free = 0;
  };
  ProfileRequest request;
  request.utilization = 0.8;
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->ledger.weights, 40 * kGiB);
  EXPECT_EQ(profile->available_bytes, 56 * kGiB) << "96 of the limit less 40; 60 are available";
}

TEST(MemoryProfile, RefusesWhatCannotWork) {
  Ordinary ordinary;
  for (const double utilization : {0.0, -0.5, 1.5}) {
    ordinary.request.utilization = utilization;
    EXPECT_EQ(ordinary.profile().error().code, ErrorCode::invalid_argument);
  }
  Ordinary crowded;
  crowded.device.others = 40 * kGiB;
  const auto at_start = crowded.profile();
  ASSERT_FALSE(at_start.ok());
  EXPECT_EQ(at_start.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(at_start.error().message.find(std::to_string(48 * kGiB)), std::string::npos) << at_start.error().message;

  Ordinary big;
  big.stages.on_load = [&] { big.device.pool = 50 * kGiB; };
  const auto nothing_left = big.profile();
  ASSERT_FALSE(nothing_left.ok());
  EXPECT_EQ(nothing_left.error().code, ErrorCode::out_of_memory);

  ScriptedMemoryProbe silent;
  Stages stages;
  EXPECT_EQ(determine_available_memory(silent, stages, {}).error().code, ErrorCode::environment);
  silent.now.runtime_total = kGiB;
  EXPECT_EQ(determine_available_memory(silent, stages, {}).error().code, ErrorCode::environment);
}

TEST(MemoryProfile, PassesOnTheWorkloadsFailure) {
  struct Failing final : ProfiledWorkload {
    Status run() override { return {ErrorCode::out_of_memory, "batch too large"}; }
  } failing;
  ScriptedDevice device;
  DeviceProbe probe(device);
  const auto profile = determine_available_memory(probe, failing, {});
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.error().message, "batch too large");
}

TEST(MemoryProfile, HostPoolsAreCappedUnlessAskedOtherwise) {
  ScriptedMemoryProbe probe(MemoryKind::host, false, "host");
  probe.now.runtime_total = 64 * kGiB;
  probe.now.runtime_free = 20 * kGiB;
  probe.now.own_process = kGiB / 8;
  Stages stages;
  ProfileRequest request;
  EXPECT_EQ(determine_available_memory(probe, stages, request)->available_bytes, kDefaultHostKVBytes);
  request.kv_cap_bytes = 8 * kGiB;
  EXPECT_EQ(determine_available_memory(probe, stages, request)->available_bytes, 8 * kGiB);
  request.explicit_kv_bytes = 12'345'678;
  EXPECT_EQ(determine_available_memory(probe, stages, request)->available_bytes, 12'345'678);
}

TEST(MemoryProfile, TheRunIsRepeatedBesideThePool) {
  Ordinary ordinary;
  DeviceProbe probe(ordinary.device);
  const auto profile = determine_available_memory(probe, ordinary.stages, ordinary.request);
  ASSERT_TRUE(profile.ok());
  EXPECT_TRUE(check_room(probe, profile->available_bytes, 0).ok());
  ordinary.device.outside += profile->available_bytes;  // the pool
  EXPECT_TRUE(verify_beside_pool(probe, ordinary.stages, *profile, profile->available_bytes).ok());
  ordinary.device.outside += kGiB;  // something nobody has measured
  const Status status = verify_beside_pool(probe, ordinary.stages, *profile, profile->available_bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  const Status room = check_room(probe, 60 * kGiB, 0);
  ASSERT_FALSE(room.ok());
  EXPECT_NE(room.error().message.find("are missing"), std::string::npos);
}

}  // namespace
}  // namespace kvpool
