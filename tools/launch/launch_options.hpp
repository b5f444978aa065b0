// What `kvpool launch` can be told.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "kvpool/multigpu/rendezvous.hpp"

namespace kvpool::launch {

struct LaunchOptions {
  std::string trace;
  std::optional<std::uint64_t> first;   ///< requests
  std::int64_t tokens_per_id = 16;      ///< of an id trace
  std::int64_t schedulers = 4;          ///< threads in rank 0
  std::string model;                    ///< path; empty: the default model
  std::optional<std::int64_t> memory;   ///< bytes of KV pool per rank; empty: profiled
  double utilization = 0.92;            ///< of the memory that the probe finds
  std::int64_t block_size = 16;         ///< tokens
  std::string backend = "auto";         ///< auto, cpu, cuda
  std::string transport = "auto";       ///< auto, mpi, tcp, nccl, threads
  std::optional<int> ranks_as_threads;  ///< ranks in this one process
  std::string meet;                     ///< HOST:PORT where ranks without MPI meet; empty: none
  std::optional<int> rank;              ///< of this process, where no launcher says it
  std::optional<int> world_size;        ///< likewise
  std::int64_t verify = 0;              ///< requests
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::int64_t step_tokens = 512;  ///< tokens per step
  std::int64_t max_running = 64;   ///< requests
  int compute_threads = 0;         ///< per rank; 0: cores / ranks of the host
  std::string log_folder;          ///< of one log per rank; empty: none
  bool json = false;

  /// Whether ranks need a GPU each.
  [[nodiscard]] bool wants_device() const { return backend == "cuda" || transport == "nccl"; }
  [[nodiscard]] Timeout timeout() const { return std::chrono::ceil<std::chrono::milliseconds>(deadline); }
};

/// Keys per partial attention result; fixed, so that outputs do not depend on batches and ranks.
inline constexpr std::int64_t kKeysPerSplit = 256;

/// Options on `command`; values out of range are usage errors.
void add_options(CLI::App& command, LaunchOptions& options);

/// Rules between options. Errors: invalid_config with names and values.
[[nodiscard]] Status validate(const LaunchOptions& options);

/// HOST:PORT, the last colon counts. Errors: bad_input naming the text.
[[nodiscard]] Result<TcpPlace> parse_meeting_place(const std::string& text);

}  // namespace kvpool::launch
