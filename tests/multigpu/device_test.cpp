// Devices: what is refused before any library is asked, and what happens where there is none.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "kvpool/multigpu/memory_probe.hpp"
#include "kvpool/multigpu/nccl_communicator.hpp"
#include "kvpool/multigpu/rendezvous.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::on_thread_ranks;

TEST(Devices, TwoRanksOnOneGpuAreNamed) {
  const std::vector<DevicePlace> good = {{"a", "1"}, {"a", "2"}, {"b", "1"}};
  EXPECT_TRUE(check_devices_differ(good).ok()) << "the same uuid on another host is another device";
  const std::vector<DevicePlace> bad = {{"a", "1"}, {"a", "2"}, {"a", "1"}, {"a", "2"}};
  const Status status = check_devices_differ(bad);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_config);
  EXPECT_EQ(status.error().rank, 2);
  EXPECT_NE(status.error().message.find("ranks 0 and 2 share GPU 1 on a; ranks 1 and 3 share GPU 2 on a"),
            std::string::npos)
      << status.error().message;
}

TEST(Devices, AFileCarriesTheUniqueId) {
  const auto path = (std::filesystem::temp_directory_path() / ("kvpool_id_" + std::to_string(getpid()))).string();
  const Bytes id(128, std::byte{0x5a});
  on_thread_ranks(4, [&](Communicator& comm) {
    Bytes bytes = comm.rank() == 0 ? id : Bytes{};
    EXPECT_TRUE(share_through_file(path, bytes, comm.rank(), 10s).ok());
    EXPECT_EQ(bytes, id);
  });
  std::filesystem::remove(path);
  Bytes bytes;
  EXPECT_EQ(share_through_file(path, bytes, 1, 30ms).error().code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(share_through_file("/nonexistent/folder/id", bytes, 0, 30ms).error().code, ErrorCode::environment);
}

/// Without a GPU every rank must get the same clear error at once; with one per rank it must work.
TEST(Devices, WithoutADeviceNcclIsRefusedAtOnceAndAlike) {
  const auto device = make_cuda_memory_probe(0);
  if (device.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(device.error().code, built_with_nccl() ? ErrorCode::environment : ErrorCode::unsupported);
  for (const int world : {1, 3}) {
    std::vector<std::string> errors(static_cast<std::size_t>(world));
    const auto start = std::chrono::steady_clock::now();
    on_thread_ranks(world, [&](Communicator& comm) {
      const auto nccl = make_nccl_communicator(comm, 0, 30s);
      ASSERT_FALSE(nccl.ok());
      errors[static_cast<std::size_t>(comm.rank())] = testing::to_text(nccl.error());
      if (built_with_nccl()) {
        EXPECT_EQ(nccl.error().code, ErrorCode::environment);
        EXPECT_NE(nccl.error().message.find("no CUDA device"), std::string::npos) << nccl.error().message;
        EXPECT_TRUE(comm.barrier(10s).ok()) << "the control communicator is still of use";
      } else {
        EXPECT_EQ(nccl.error().code, ErrorCode::unsupported);
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
    for (const auto& error : errors) EXPECT_EQ(error, errors[0]);
  }
}

}  // namespace
}  // namespace kvpool
