#include "tools/launch/rank/rank_memory.hpp"

#include <fmt/format.h>

#include "tools/launch/step/byte_codec.hpp"

namespace kvpool::launch {

Bytes encode(const RankMemory& memory) {
  ByteWriter out;
  for (const std::int64_t number :
       {std::int64_t{memory.rank}, memory.total, memory.peak, memory.non_pool, memory.available, memory.num_blocks}) {
    out.put(number);
  }
  out.put_text(memory.backend);
  out.put_text(memory.device);
  return out.take();
}

Result<RankMemory> decode_rank_memory(std::span<const std::byte> bytes, int rank) {
  ByteReader in(bytes);
  RankMemory memory;
  memory.rank = static_cast<int>(in.get<std::int64_t>("rank"));
  memory.total = in.get<std::int64_t>("total");
  memory.peak = in.get<std::int64_t>("peak");
  memory.non_pool = in.get<std::int64_t>("non-pool");
  memory.available = in.get<std::int64_t>("available");
  memory.num_blocks = in.get<std::int64_t>("blocks");
  memory.backend = in.get_text("backend");
  memory.device = in.get_text("device");
  if (in.ok() && in.remaining() != 0) in.fail("end", fmt::format("{} bytes too many", in.remaining()));
  if (in.ok() && memory.rank != rank) in.fail("rank", fmt::format("{} from rank {}", memory.rank, rank));
  if (in.ok()) return memory;
  return {ErrorCode::bad_input, fmt::format("memory report of rank {}: {}", rank, in.problem()), rank};
}

}  // namespace kvpool::launch
