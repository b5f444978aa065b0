// gpu_check_nccl --out FOLDER: the NCCL adapter on one device. A rank's peers are played by the control communicator,
// so that one process sees the refusal of a device named twice and a peer that never comes.
// Exit status: 0 right, 1 wrong, 3 no device.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>

#include "kvpool/multigpu/memory_probe.hpp"
#include "kvpool/multigpu/nccl_communicator.hpp"
#include "tools/gpu_check/device_memory.hpp"
#include "tools/gpu_check/report.hpp"

namespace kvpool::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

/// Rank 0 of `world`; the others say what rank 0 says, and in step `altered` something that differs in the last byte.
class PlayedPeers final : public Communicator {
 public:
  PlayedPeers(int world, std::string altered) : world_(world), altered_(std::move(altered)) {}
  int rank() const noexcept override { return 0; }
  int world_size() const noexcept override { return world_; }
  Result<std::vector<Bytes>> agree(std::string_view step, std::span<const std::byte> mine, Timeout) override {
    if (failure_) return *failure_;
    return played(step, mine);
  }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, Timeout) override { return played("", mine); }
  Result<std::vector<Bytes>> gather(std::span<const std::byte> mine, int, Timeout) override { return played("", mine); }
  Status broadcast(Bytes&, int, Timeout) override { return {}; }
  Status all_reduce_min(std::span<std::int64_t>, Timeout) override { return {}; }
  Status all_reduce_sum(std::span<float>, SumOrder, Timeout) override { return no_sum(); }
  Status all_reduce_sum_bf16(std::span<std::uint16_t>, SumOrder, Timeout) override { return no_sum(); }
  Status barrier(Timeout) override { return {}; }
  void abort(const Error& reason) noexcept override {
    if (!failure_) failure_ = reason;
  }
  const std::optional<Error>& failure() const noexcept override { return failure_; }

 private:
  static Status no_sum() { return {ErrorCode::unsupported, "this control communicator adds nothing"}; }
  [[nodiscard]] std::vector<Bytes> played(std::string_view step, std::span<const std::byte> mine) const {
    std::vector<Bytes> all(static_cast<std::size_t>(world_), Bytes(mine.begin(), mine.end()));
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (step == altered_ && !all[r].empty()) all[r].back() ^= std::byte{1};
    }
    return all;
  }

  int world_;
  std::string altered_;
  std::optional<Error> failure_;
};

void check_one_rank(Report& report) {
  PlayedPeers control(1, "");
  const auto nccl = make_nccl_communicator(control, 0, seconds(10));
  if (!report.check("one rank: set-up", nccl.ok(), nccl ? "" : nccl.error().message)) return;
  std::int64_t smallest[] = {7, -3, std::int64_t{1} << 40};
  report.check("one rank: minimum", (*nccl)->all_reduce_min(smallest, seconds(10)).ok() && smallest[0] == 7 &&
                                        smallest[1] == -3 && smallest[2] == std::int64_t{1} << 40);
  const std::vector<float> values = {1.5F, -2.0F, 0.25F, 1e30F};
  DeviceBytes there(values.data(), values.size() * sizeof(float));
  const bool summed = (*nccl)->all_reduce_sum({there.as<float>(), values.size()}, SumOrder::any, seconds(10)).ok();
  std::vector<float> sum(values.size());
  there.download(sum.data());
  report.check("one rank: sum on the device", summed && sum == values);
  report.check(
      "one rank: a sum in a fixed order is refused",
      (*nccl)->all_reduce_sum({there.as<float>(), values.size()}, SumOrder::fixed_tree, seconds(10)).error().code ==
          ErrorCode::unsupported);
  const Bytes mine(5, std::byte{0x5A});
  const auto gathered = (*nccl)->all_gather(mine, seconds(10));
  report.check("one rank: all-gather", gathered.ok() && gathered->size() == 1 && (*gathered)[0] == mine);
}

void check_same_device(Report& report) {
  PlayedPeers control(2, "");
  const auto nccl = make_nccl_communicator(control, 0, seconds(10));
  report.check("two ranks on one GPU are refused by name",
               !nccl.ok() && nccl.error().code == ErrorCode::invalid_config &&
                   nccl.error().message.find("ranks 0 and 1 share GPU") != std::string::npos,
               nccl ? "accepted" : nccl.error().message);
}

void check_missing_peer(Report& report) {
  PlayedPeers control(2, "nccl devices");  // the uuid is the last field: another device, and nobody behind it
  const auto start = Clock::now();
  const auto nccl = make_nccl_communicator(control, 0, seconds(5));
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  report.check("a peer that never comes: error and abort after 5 s", !nccl.ok() && took < 12,
               std::to_string(took) + " s: " + (nccl ? "accepted" : nccl.error().message));
}

int run(const std::string& folder) {
  const auto probe = make_cuda_memory_probe(0);
  if (!probe) {
    std::printf("no device: %s\n", probe.error().message.c_str());
    return 3;
  }
  Report report(folder, "nccl");
  check_one_rank(report);
  check_same_device(report);
  check_missing_peer(report);
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvpool::gpu_check

int main(int argc, char** argv) {
  std::string folder = ".";
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--out") == 0) folder = argv[i + 1];
  }
  return kvpool::gpu_check::run(folder);
}
