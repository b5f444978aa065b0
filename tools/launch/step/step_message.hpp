// What rank 0 tells every rank before each step, and how it travels.
//
// Block tables are sent as changes against what a rank already knows; slots and lengths are sent in full. The
// encoding is little-endian with a checksum; decoding checks every length before it allocates or reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/prefix/block_hasher.hpp"

namespace kvpool::launch {

/// Consecutive entries of one block table, from `first` on.
struct TableRun {
  std::uint32_t first = 0;
  std::vector<std::uint32_t> blocks;
  bool operator==(const TableRun&) const = default;
};

/// New length and changed entries of one sequence's table in one KV cache group.
struct TableUpdate {
  std::uint32_t length = 0;  ///< blocks in the table after the update
  std::vector<TableRun> runs;
  bool operator==(const TableUpdate&) const = default;
};

/// One sequence's part of a step: tokens [num_computed, num_computed + tokens.size()) of the request.
struct StepSequence {
  std::uint64_t request = 0;
  std::uint32_t num_computed = 0;                ///< tokens whose KV is in the cache already
  std::uint32_t num_outputs = 0;                 ///< results of that many last rows are gathered
  std::vector<TokenId> tokens;                   ///< at least one
  std::vector<TableUpdate> tables;               ///< one per group
  std::vector<std::vector<std::int64_t>> slots;  ///< per group, one per token
  bool operator==(const StepSequence&) const = default;

  /// Tokens in the cache after the step: the length that attention sees.
  [[nodiscard]] std::int64_t length() const noexcept {
    return std::int64_t{num_computed} + static_cast<std::int64_t>(tokens.size());
  }
};

struct PageCopy {
  std::uint32_t source = 0;
  std::uint32_t target = 0;
  bool operator==(const PageCopy&) const = default;
};

enum class StepKind : std::uint8_t {
  work = 0,     ///< execute the sequences
  hold = 1,     ///< nothing to do yet; rank 0 is alive
  finish = 2,   ///< it is over
  compare = 3,  ///< no more work comes: compare the tables of the last steps
};

struct StepMessage {
  std::uint64_t step = 0;
  StepKind kind = StepKind::work;
  std::uint32_t num_groups = 1;
  std::vector<std::uint64_t> removed;  ///< requests whose tables are forgotten, before anything else
  std::vector<PageCopy> copies;        ///< done before anything is appended
  std::vector<StepSequence> sequences;
  bool operator==(const StepMessage&) const = default;

  [[nodiscard]] std::int64_t num_tokens() const noexcept;
};

[[nodiscard]] std::vector<std::byte> encode(const StepMessage& message);

/// Errors: bad_input with the offset and what was expected (short, trailing bytes, counts beyond the bytes that
/// are there, unknown kinds, sums that differ). Never allocates more than a small multiple of bytes.size().
[[nodiscard]] Result<StepMessage> decode_step(std::span<const std::byte> bytes);

}  // namespace kvpool::launch
