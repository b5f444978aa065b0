#include "tools/launch/launch_options.hpp"

#include <fmt/format.h>

#include <charconv>

#include "tools/cli/quantity.hpp"

namespace kvpool::launch {
namespace {

constexpr std::int64_t kMaxSchedulers = 256;
constexpr std::int64_t kMaxTokensPerId = 1 << 16;
constexpr std::int64_t kMaxStepTokens = 1 << 20;
constexpr int kMaxThreadRanks = 64;
constexpr int kMaxProcessRanks = 4096;
constexpr int kMaxComputeThreads = 1024;

constexpr const char* kExample =
    "Example:\n"
    "  mpirun -n 2 kvpool launch --trace conversation.kvt.gz --first 200 --schedulers 4 --verify 8\n"
    "Tokens per id 16 lets one id of the trace stand for 16 tokens, so that its sharing is kept at laptop scale.\n"
    "Exit status: 0 done, 1 verification failed, 2 bad input or a request that can never fit, 3 a rank failed.";

}  // namespace

void add_options(CLI::App& command, LaunchOptions& options) {
  command.footer(kExample);
  command.add_option("--trace", options.trace, "Trace file: .kvt or Mooncake JSONL, plain or gzip")->required();
  command.add_option("--first", options.first, "Only the first N requests")->check(CLI::Range(1, 1 << 24));
  command.add_option("--tokens-per-id", options.tokens_per_id, "Tokens that one id of the trace stands for")
      ->check(CLI::Range(std::int64_t{1}, kMaxTokensPerId))
      ->capture_default_str();
  command.add_option("--schedulers", options.schedulers, "Scheduler threads in rank 0")
      ->check(CLI::Range(std::int64_t{1}, kMaxSchedulers))
      ->capture_default_str();
  command.add_option("--model", options.model, "Model configuration (JSON); default: 2 layers, 8 heads of 64, fp32");
  command.add_option_function<std::string>(
      "--memory",
      [&options](const std::string& text) {
        const auto bytes = tools::parse_size(text);
        if (!bytes.ok()) throw CLI::ValidationError("--memory", bytes.error().message);
        options.memory = *bytes;
      },
      "Bytes of KV pool per rank, as in 64MiB; default: what profiling finds, at most 1GiB on the CPU");
  command.add_option("--utilization", options.utilization, "Share of the memory that may be used")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  command.add_option("--block-size", options.block_size, "Tokens per block; divides 256")->capture_default_str();
  command
      .add_option("--backend", options.backend,
                  "Who computes attention; auto is the CPU, or CUDA with --transport nccl")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--transport", options.transport,
                  "How ranks talk; nccl is set up over MPI, TCP (with --meet) or threads")
      ->check(CLI::IsMember({"auto", "mpi", "tcp", "nccl", "threads"}))
      ->capture_default_str();
  command.add_option("--ranks-as-threads", options.ranks_as_threads, "Ranks as threads of this process")
      ->check(CLI::Range(1, kMaxThreadRanks));
  command.add_option("--meet", options.meet, "HOST:PORT of rank 0, for --transport tcp");
  command.add_option("--rank", options.rank, "Number of this process, where no launcher says it (with --meet)")
      ->check(CLI::Range(0, kMaxProcessRanks - 1));
  command.add_option("--ranks", options.world_size, "Number of processes, likewise")
      ->check(CLI::Range(1, kMaxProcessRanks));
  command.add_option("--verify", options.verify, "Requests to compute again with a dense reference")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->capture_default_str();
  tools::add_duration_option(command, "--deadline", options.deadline, "Longest wait for another rank [60s]");
  command.add_option("--step-tokens", options.step_tokens, "Most tokens in one step")
      ->check(CLI::Range(std::int64_t{1}, kMaxStepTokens))
      ->capture_default_str();
  command.add_option("--max-running", options.max_running, "Most requests that run at the same time")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--compute-threads", options.compute_threads, "Threads of each rank; 0: cores / ranks of the host")
      ->check(CLI::Range(0, kMaxComputeThreads))
      ->capture_default_str();
  command.add_option("--log-dir", options.log_folder, "Folder for one log file per rank: rank-R.log");
  command.add_flag("--json", options.json, "One JSON object instead of the table");
}

Status validate(const LaunchOptions& options) {
  if (options.block_size < 1 || options.block_size > kKeysPerSplit || kKeysPerSplit % options.block_size != 0) {
    return {ErrorCode::invalid_config, fmt::format("--block-size {} does not divide the {} keys of a partial result",
                                                   options.block_size, kKeysPerSplit)};
  }
  if (options.ranks_as_threads && (options.transport == "mpi" || options.transport == "tcp")) {
    return {ErrorCode::invalid_config, fmt::format("--ranks-as-threads {} and --transport {} exclude each other",
                                                   *options.ranks_as_threads, options.transport)};
  }
  if (options.transport == "nccl" && options.backend == "cpu") {
    return {ErrorCode::invalid_config, "--transport nccl sums on devices and needs --backend cuda"};
  }
  if (options.deadline <= std::chrono::nanoseconds::zero()) {
    return {ErrorCode::invalid_config, "--deadline must be above 0"};
  }
  return {};
}

Result<TcpPlace> parse_meeting_place(const std::string& text) {
  TcpPlace place;
  const std::size_t colon = text.rfind(':');
  const char* const end = text.data() + text.size();
  if (colon != std::string::npos && colon > 0) {
    place.host = text.substr(0, colon);
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, place.port);
    if (error == std::errc{} && stop == end && place.port != 0) return place;
  }
  return {ErrorCode::bad_input, fmt::format("--meet '{}' is not HOST:PORT", text)};
}

}  // namespace kvpool::launch
