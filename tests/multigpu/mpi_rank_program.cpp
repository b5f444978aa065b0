// One rank of the process tests: agrees, serves, and meets the misfortune that its command line names.
//
//   mpi_rank_program OUT_DIR DEADLINE_MS MISFORTUNE STEP VICTIM
//
// MISFORTUNE: none, kill, stop, layout, memory, throw, override. Every rank that returns writes
// OUT_DIR/rank<r>: exit status, moment of return in nanoseconds, message. A rank that is killed or stopped
// writes OUT_DIR/victim before: process id and moment.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "fake_storage.hpp"
#include "kvpool/multigpu/divergence_monitor.hpp"
#include "kvpool/multigpu/mpi_communicator.hpp"

namespace {

using namespace kvpool;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Whole or not at all, because the test polls for it.
void write_file(const std::string& path, const std::string& text) {
  {
    std::ofstream file(path + ".part");
    file << text;
  }
  if (std::rename((path + ".part").c_str(), path.c_str()) != 0) std::perror("rename");
}

struct Fate {
  std::string out_dir;
  Timeout deadline{};
  std::string misfortune;
  std::string step;
  int victim = 0;

  void strike(std::string_view at) const {
    if (step != at || (misfortune != "kill" && misfortune != "stop")) return;
    write_file(out_dir + "/victim", std::to_string(getpid()) + " " + std::to_string(now_ns()) + "\n");
    std::raise(misfortune == "kill" ? SIGKILL : SIGSTOP);
  }
};

/// Passes everything on, and strikes before the step that fate has chosen.
class FatedCommunicator final : public Communicator {
 public:
  FatedCommunicator(Communicator& inner, const Fate& fate) : inner_(inner), fate_(fate) {}
  int rank() const noexcept override { return inner_.rank(); }
  int world_size() const noexcept override { return inner_.world_size(); }
  Result<std::vector<Bytes>> agree(std::string_view step, std::span<const std::byte> mine, Timeout timeout) override {
    if (rank() == fate_.victim) fate_.strike(step);
    return inner_.agree(step, mine, timeout);
  }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, Timeout timeout) override {
    if (rank() == fate_.victim) fate_.strike("serve");
    return inner_.all_gather(mine, timeout);
  }
  Result<std::vector<Bytes>> gather(std::span<const std::byte> mine, int root, Timeout timeout) override {
    return inner_.gather(mine, root, timeout);
  }
  Status broadcast(Bytes& bytes, int root, Timeout timeout) override { return inner_.broadcast(bytes, root, timeout); }
  Status all_reduce_min(std::span<std::int64_t> values, Timeout timeout) override {
    return inner_.all_reduce_min(values, timeout);
  }
  Status all_reduce_sum(std::span<float> values, SumOrder order, Timeout timeout) override {
    if (rank() == fate_.victim) fate_.strike("sum");
    return inner_.all_reduce_sum(values, order, timeout);
  }
  Status all_reduce_sum_bf16(std::span<std::uint16_t> values, SumOrder order, Timeout timeout) override {
    return inner_.all_reduce_sum_bf16(values, order, timeout);
  }
  Status barrier(Timeout timeout) override { return inner_.barrier(timeout); }
  void abort(const Error& reason) noexcept override { inner_.abort(reason); }
  const std::optional<Error>& failure() const noexcept override { return inner_.failure(); }

 private:
  Communicator& inner_;
  const Fate& fate_;
};

Status profile(bool throws) {
  try {
    if (throws) throw std::runtime_error("the profile run fell over");
  } catch (const std::exception& error) {
    return {ErrorCode::internal, error.what()};
  }
  return {};
}

Status live(Communicator& communicator, const Fate& fate) {
  const bool victim = communicator.rank() == fate.victim;
  RankView view = testing::view_of(1000 + communicator.rank());
  view.profiling = profile(victim && fate.misfortune == "throw");
  if (victim && fate.misfortune == "layout") view.layout = testing::small_layout("4096");
  if (victim && fate.misfortune == "memory") view.limits = {0};
  AgreementOptions options;
  options.deadline = fate.deadline;
  if (fate.misfortune == "override") options.num_blocks_override = {1001};
  testing::FakeStorage storage;
  const auto agreement = RankCoordinator(communicator, options).agree(view, storage);
  if (!agreement) return agreement.error();

  DivergenceMonitor monitor(communicator, {2, fate.deadline, 1000});
  for (std::uint64_t step = 0; step < 4; ++step) {
    monitor.record({step, 0, 7});
    std::vector<float> sum(3000, 1.0F);
    if (auto status = communicator.all_reduce_sum(sum, SumOrder::fixed_tree, fate.deadline); !status) return status;
    if (sum[17] != static_cast<float>(communicator.world_size())) return {ErrorCode::internal, "wrong sum"};
    const auto outcome = monitor.end_step();
    if (!outcome) return outcome.error();
    if (outcome->alarm) return {ErrorCode::internal, outcome->alarm->describe()};
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const Fate fate{argv[1], Timeout(std::atoi(argv[2])), argv[3], argv[4], std::atoi(argv[5])};
  const auto place = read_launcher_place([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (!place) return 3;
  auto communicator = make_mpi_communicator(*place, Timeout(20'000));
  if (!communicator) {
    std::fprintf(stderr, "%s\n", communicator.error().message.c_str());
    return 3;
  }
  const int rank = (*communicator)->rank();
  FatedCommunicator fated(**communicator, fate);
  const Status status = live(fated, fate);
  const std::string text = status.ok() ? "ok" : status.error().message;
  write_file(fate.out_dir + "/rank" + std::to_string(rank),
             std::to_string(status.ok() ? 0 : 3) + " " + std::to_string(now_ns()) + " " + text + "\n");
  if (!status.ok()) exit_after_rank_failure();
  return 0;
}
