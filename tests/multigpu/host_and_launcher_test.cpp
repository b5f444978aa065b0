// Host memory from files, counted allocations, and what launchers say.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "kvpool/multigpu/memory_probe.hpp"
#include "kvpool/multigpu/memory_profile.hpp"
#include "kvpool/multigpu/mpi_communicator.hpp"

namespace kvpool {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

/// A folder with the files of a machine.
class FakeMachine : public ::testing::Test {
 protected:
  FakeMachine() {
    root_ = std::filesystem::temp_directory_path() / ("kvpool_host_" + std::to_string(getpid()) + "_" +
                                                      ::testing::UnitTest::GetInstance()->current_test_info()->name());
    write("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n");
    write("proc/self/status", "Name:\tx\nRssAnon:\t  102400 kB\nRssFile:\t 999 kB\nRssShmem:\t 1024 kB\n");
    write("proc/self/cgroup", "0::/jobs/job7\n");
  }
  ~FakeMachine() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    const auto path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  MemoryReading read(int ranks = 1, CountingAllocator* allocator = nullptr) {
    HostProbeOptions options;
    options.ranks_on_host = ranks;
    options.allocator = allocator;
    options.proc_root = (root_ / "proc").string();
    options.cgroup_root = (root_ / "cgroup").string();
    return make_host_memory_probe(options)->read();
  }

  std::filesystem::path root_;
};

TEST_F(FakeMachine, WithoutLimitsTheMachineCounts) {
  const auto reading = read();
  EXPECT_EQ(reading.runtime_total, 8192 * kMiB);
  EXPECT_EQ(reading.runtime_free, 4096 * kMiB);
  EXPECT_EQ(reading.own_process, 101 * kMiB);
  EXPECT_EQ(reading.other_processes, (4096 - 101) * kMiB);
  EXPECT_FALSE(reading.pool_reserved.has_value());
  EXPECT_FALSE(reading.graph_reserved.has_value());
}

TEST_F(FakeMachine, RanksOnOneHostShareIt) {
  const auto reading = read(4);
  EXPECT_EQ(reading.runtime_total, 2048 * kMiB);
  EXPECT_EQ(reading.runtime_free, 1024 * kMiB);
}

TEST_F(FakeMachine, TheTightestGroupCountsAndItsFileCacheIsFree) {
  write("cgroup/jobs/job7/memory.max", "max\n");
  write("cgroup/jobs/memory.max", "1073741824\n");
  write("cgroup/jobs/memory.current", "805306368\n");
  write("cgroup/jobs/memory.stat", "anon 1\nfile 2\ninactive_file 268435456\n");
  const auto reading = read();
  EXPECT_EQ(reading.runtime_total, 1024 * kMiB);
  EXPECT_EQ(reading.runtime_free, 512 * kMiB);
  write("cgroup/jobs/job7/memory.high", "536870912\n");
  write("cgroup/jobs/job7/memory.current", "536870912\n");
  EXPECT_EQ(read().runtime_total, 512 * kMiB);
  EXPECT_EQ(read().runtime_free, 0);
}

TEST_F(FakeMachine, WhatCannotBeReadIsUnknown) {
  std::filesystem::remove_all(root_ / "proc");
  const auto reading = read();
  EXPECT_FALSE(reading.runtime_total.has_value());
  EXPECT_FALSE(reading.runtime_free.has_value());
  EXPECT_FALSE(reading.own_process.has_value());
  EXPECT_FALSE(reading.other_processes.has_value());
}

TEST(HostMemory, ThisMachineAnswersAndAProfileWorks) {
  CountingAllocator allocator;
  HostProbeOptions options;
  options.allocator = &allocator;
  const auto probe = make_host_memory_probe(options);
  struct Load final : ProfiledWorkload {
    explicit Load(CountingAllocator& counted) : allocator(counted) {}
    ~Load() override { allocator.deallocate(weights, 32U << 20U); }
    Status load_weights() override {
      weights = allocator.allocate(32U << 20U);
      return {};
    }
    Status run() override {
      void* scratch = allocator.allocate(8U << 20U);
      allocator.deallocate(scratch, 8U << 20U);
      return {};
    }
    CountingAllocator& allocator;
    void* weights = nullptr;
  } load(allocator);
  ProfileRequest request;
  request.explicit_kv_bytes = 64 * kMiB;
  const auto profile = determine_available_memory(*probe, load, request);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->available_bytes, 64 * kMiB);
  EXPECT_EQ(profile->ledger.peak_activations, 8 * kMiB);
  EXPECT_GE(profile->peak_bytes, 40 * kMiB);
  EXPECT_EQ(profile->ledger.total_source, "host");
}

TEST(CountingAllocatorTest, CountsExactlyAlsoFromManyThreads) {
  CountingAllocator allocator(1000);
  void* first = allocator.allocate(600);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % CountingAllocator::kAlignment, 0U);
  EXPECT_EQ(allocator.allocate(401), nullptr);
  EXPECT_EQ(allocator.used(), 600);
  allocator.deallocate(first, 600);
  EXPECT_EQ(allocator.peak(), 600);
  allocator.reset_peak();
  EXPECT_EQ(allocator.peak(), 0);

  CountingAllocator shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 1; i < 500; ++i) shared.deallocate(shared.allocate(i), i);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared.used(), 0);
  EXPECT_GE(shared.peak(), 499);
  EXPECT_LE(shared.peak(), 4 * 499);
}

EnvironmentLookup lookup_in(std::map<std::string, std::string, std::less<>> variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Launcher, KnowsWhoStartedIt) {
  EXPECT_FALSE(read_launcher_place(lookup_in({}))->has_value());
  const auto open_mpi = **read_launcher_place(lookup_in({{"OMPI_COMM_WORLD_SIZE", "4"},
                                                         {"OMPI_COMM_WORLD_RANK", "3"},
                                                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(open_mpi.launcher, "OpenMPI");
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.world_size, 4);
  EXPECT_EQ(open_mpi.local_rank, 1);
  EXPECT_EQ(open_mpi.local_size, 2);
  const auto pmi = **read_launcher_place(lookup_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}));
  EXPECT_EQ(pmi.launcher, "PMI");
  EXPECT_FALSE(pmi.local_rank.has_value());
  const auto slurm =
      **read_launcher_place(lookup_in({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "7"}, {"SLURM_LOCALID", "3"}}));
  EXPECT_EQ(slurm.launcher, "Slurm");
  EXPECT_EQ(slurm.local_rank, 3);
  EXPECT_FALSE(read_launcher_place(lookup_in({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}))->has_value())
      << "a batch script is one process";
}

TEST(Launcher, SlurmSaysWhatItsPmiLeavesOut) {
  const auto with = [](const std::string& tasks, const std::string& node) {
    return read_launcher_place(lookup_in({{"PMI_SIZE", "9"},
                                          {"PMI_RANK", "8"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_NODEID", node},
                                          {"SLURM_STEP_TASKS_PER_NODE", tasks}}));
  };
  const auto last = **with("4(x2),1", "2");
  EXPECT_EQ(last.launcher, "PMI");
  EXPECT_EQ(last.local_rank, 0);
  EXPECT_EQ(last.local_size, 1);
  EXPECT_EQ((**with("4(x2),1", "1")).local_size, 4);
  EXPECT_EQ((**with("9", "0")).local_size, 9);
  EXPECT_FALSE((**with("4(x2),1", "3")).local_size.has_value()) << "a node the list does not have";
  for (const char* tasks : {"x", "4(x", "4(x2", "4(x0)", "-1", "4;2", "4(x2)1"}) {
    const auto place = with(tasks, "5");
    ASSERT_FALSE(place.ok()) << tasks;
    EXPECT_NE(place.error().message.find(tasks), std::string::npos) << place.error().message;
  }
  const auto step = **read_launcher_place(lookup_in({{"SLURM_STEP_NUM_TASKS", "2"},
                                                     {"SLURM_PROCID", "1"},
                                                     {"SLURM_LOCALID", "1"},
                                                     {"SLURM_NODEID", "0"},
                                                     {"SLURM_STEP_TASKS_PER_NODE", "2"}}));
  EXPECT_EQ(step.local_size, 2);
}

TEST(Launcher, MpichSaysPlaceAndHost) {
  const auto place = **read_launcher_place(
      lookup_in({{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
}

TEST(Launcher, RefusesValuesThatMakeNoSense) {
  for (const char* rank : {"4", "-1", "x", "", "1x", "99999999999999"}) {
    const auto place = read_launcher_place(lookup_in({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", rank}}));
    ASSERT_FALSE(place.ok()) << rank;
    EXPECT_EQ(place.error().code, ErrorCode::environment);
    EXPECT_NE(place.error().message.find("OMPI_COMM_WORLD_RANK"), std::string::npos);
  }
  EXPECT_FALSE(read_launcher_place(lookup_in({{"PMI_SIZE", "2"}})).ok());
}

TEST(Launcher, NobodyWorksAloneAsRankZeroOfOne) {
  const auto place = *read_launcher_place(lookup_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}));
  EXPECT_TRUE(check_launcher(place, 2).ok());
  EXPECT_TRUE(check_launcher(std::nullopt, 1).ok());
  const Status status = check_launcher(place, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::environment);
  EXPECT_NE(status.error().message.find("PMI started 2 ranks, but this program sees a world of 1"), std::string::npos)
      << status.error().message;
}

}  // namespace
}  // namespace kvpool
