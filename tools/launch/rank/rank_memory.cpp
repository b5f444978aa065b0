#include "tools/launch/rank/rank_memory.hpp"

#include <fmt/format.h>

#include "tools/launch/step/byte_codec.hpp"

namespace kvpool::launch {
namespace {

/// An empty name, a flag, a number.
constexpr std::size_t kLeastLineBytes = sizeof(std::uint32_t) + sizeof(std::uint8_t) + sizeof(std::int64_t);

}  // namespace

Bytes encode(const RankMemory& memory) {
  ByteWriter out;
  for (const std::int64_t number :
       {std::int64_t{memory.rank}, memory.total, memory.peak, memory.non_pool, memory.available, memory.num_blocks}) {
    out.put(number);
  }
  out.put_text(memory.backend);
  out.put_text(memory.device);
  out.put(static_cast<std::uint32_t>(memory.ledger.size()));
  for (const LedgerLine& line : memory.ledger) {
    out.put_text(line.key);
    out.put(std::uint8_t{line.bytes.has_value()});
    out.put(line.bytes.value_or(0));
  }
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
  const std::size_t lines = in.count(kLeastLineBytes, "lines of the ledger");
  for (std::size_t i = 0; i < lines && in.ok(); ++i) {
    LedgerLine line{in.get_text("line of the ledger"), std::nullopt};
    const bool known = in.get<std::uint8_t>("whether its bytes are known") != 0;
    const auto size = in.get<std::int64_t>("bytes of the ledger");
    if (known) line.bytes = size;
    memory.ledger.push_back(std::move(line));
  }
  if (in.ok() && in.remaining() != 0) in.fail("end", fmt::format("{} bytes too many", in.remaining()));
  if (in.ok() && memory.rank != rank) in.fail("rank", fmt::format("{} from rank {}", memory.rank, rank));
  if (in.ok()) return memory;
  return {ErrorCode::bad_input, fmt::format("memory report of rank {}: {}", rank, in.problem()), rank};
}

}  // namespace kvpool::launch
