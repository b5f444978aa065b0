// What a rank can hold later, beside its pool: other processes come and go, on cards, slices and unified memory.
#include <gtest/gtest.h>

#include "scripted_device.hpp"

namespace kvpool {
namespace {

using testing::DeviceProbe;
using testing::kGiB;
using testing::ScriptedDevice;
using testing::Stages;

/// A process of context 1, weights 10 and activations 4 on a device of 64, with its pool allocated.
struct Running {
  ScriptedDevice device;
  ProfileRequest request;
  MemoryProfile profile;
  std::int64_t pool = 0;

  explicit Running(std::int64_t others = 0) {
    device.outside = kGiB;
    device.others = others;
    request.utilization = 0.75;  // limit 48
    Stages stages;
    stages.on_load = [this] { device.pool = 10 * kGiB; };
    stages.on_run = [this] { device.pool = 14 * kGiB; };
    DeviceProbe probe(device);
    profile = *determine_available_memory(probe, stages, request);
    pool = profile.available_bytes;
    device.outside += pool;
  }

  std::int64_t now(std::int64_t resident) {
    DeviceProbe probe(device);
    return available_beside_pool(probe, profile, request, resident);
  }
};

TEST(MemoryLater, AnUnchangedDeviceHoldsWhatItHeld) {
  Running running;
  EXPECT_EQ(running.pool, 33 * kGiB);
  EXPECT_EQ(running.now(running.pool), running.pool);
  running.device.pool = 11 * kGiB;  // the allocator gave activations back, and will want them again
  EXPECT_EQ(running.now(running.pool), running.pool);
}

TEST(MemoryLater, AProcessThatComesTakesOnlyWhatWasNotFreeBefore) {
  Running running(2 * kGiB);
  running.device.others = 16 * kGiB;  // exactly what lies outside the limit
  EXPECT_EQ(running.now(running.pool), running.pool);
  running.device.others = 20 * kGiB;  // cannot be, but for a pool that is not resident yet
  EXPECT_EQ(running.now(running.pool), running.pool - 4 * kGiB);
}

TEST(MemoryLater, AProcessThatGoesGivesNoMoreThanTheLimit) {
  Running running(16 * kGiB);
  EXPECT_EQ(running.pool, 33 * kGiB);
  running.device.others = 0;
  EXPECT_EQ(running.now(running.pool), 33 * kGiB) << "the utilisation limit stays";
  running.device.driver = 20 * kGiB;
  EXPECT_EQ(running.now(running.pool), 29 * kGiB);
  running.device.driver = 64 * kGiB;
  EXPECT_EQ(running.now(running.pool), 0) << "never negative";
}

TEST(MemoryLater, ASliceIsMeasuredByItsOwnFigures) {
  ScriptedMemoryProbe probe(MemoryKind::device, false, "MIG-377e0b1c-5a4f-5d2c-9f0e-2f1d6c1a7b11");
  probe.now.runtime_total = 16 * kGiB;
  probe.now.runtime_free = 16 * kGiB;
  probe.now.management_total = 141 * kGiB;
  Stages stages;
  ProfileRequest request;
  request.utilization = 0.5;
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 8 * kGiB);
  probe.now.runtime_free = 8 * kGiB;  // the pool
  EXPECT_EQ(available_beside_pool(probe, *profile, request, 8 * kGiB), 8 * kGiB);
  probe.now.runtime_free = 0;  // somebody else on the slice
  EXPECT_EQ(available_beside_pool(probe, *profile, request, 4 * kGiB), 4 * kGiB);
}

TEST(MemoryLater, UnifiedMemoryCountsThePageCacheAsFree) {
  ScriptedMemoryProbe probe(MemoryKind::device, true);
  probe.now.runtime_total = 120 * kGiB;
  probe.now.runtime_free = 100 * kGiB;
  probe.now.host_available = 110 * kGiB;
  probe.now.own_process = 0;
  Stages stages;
  ProfileRequest request;
  request.utilization = 0.5;
  const auto profile = determine_available_memory(probe, stages, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 60 * kGiB);
  probe.now.runtime_free = 0;  // all of it read from files
  probe.now.host_available = 50 * kGiB;
  EXPECT_EQ(available_beside_pool(probe, *profile, request, 60 * kGiB), 60 * kGiB);
  probe.now.host_available = 10 * kGiB;
  EXPECT_EQ(available_beside_pool(probe, *profile, request, 20 * kGiB), 30 * kGiB);
}

TEST(MemoryLater, SizesThatWereAskedForAndFiguresThatAreMissingChangeNothing) {
  Running running;
  running.request.explicit_kv_bytes = 5 * kGiB;
  running.device.others = 40 * kGiB;
  EXPECT_EQ(running.now(0), 5 * kGiB);
  ScriptedMemoryProbe blind;
  EXPECT_EQ(available_beside_pool(blind, running.profile, {}, 0), running.profile.available_bytes);
}

}  // namespace
}  // namespace kvpool
