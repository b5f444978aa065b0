// What the files say, read by rank 0 alone and told to all ranks: a wrong file ends every rank with one message.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "tools/launch/driver/workload.hpp"
#include "tools/launch/launch_options.hpp"
#include "tools/launch/model/model_config.hpp"

namespace kvpool::launch {

struct Job {
  ModelConfig model;
  std::int64_t max_length = 0;         ///< tokens of the longest request
  std::shared_ptr<Workload> workload;  ///< on rank 0 only
};

/// Reads model and trace and checks what follows from them for `world_size` ranks.
/// Errors: bad_input, invalid_config.
[[nodiscard]] Result<Job> read_job(const LaunchOptions& options, int world_size);

/// Rank 0 reads, all ranks get the job or the same error (code and message). Blocks up to the deadline.
[[nodiscard]] Result<Job> share_job(const LaunchOptions& options, Communicator& communicator);

}  // namespace kvpool::launch
