#include "tools/replay/request_keys.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

namespace kvpool::tools {
namespace {

// A bijection of 64-bit words whose outputs look random (the finaliser of SplitMix64).
std::uint64_t scattered(std::uint64_t word) noexcept {
  word += 0x9e3779b97f4a7c15ULL;
  word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27U)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31U);
}

constexpr std::uint64_t kNoId = std::uint64_t{1} << 63U;  // no trace id has this bit

// The pair (owner, part) as a digest: the second word names the owner, the first one, given the owner, the part.
BlockHash digest_of(std::uint64_t owner, std::uint64_t mixed) noexcept {
  BlockHash hash;
  const std::uint64_t words[2] = {scattered(mixed), owner};
  std::memcpy(hash.bytes.data(), words, sizeof words);
  hash.size = sizeof words;
  return hash;
}

BlockHash key_of_id(std::int64_t id, std::int64_t part, std::int64_t parts) noexcept {
  const auto owner = static_cast<std::uint64_t>(id);
  return digest_of(owner, owner * static_cast<std::uint64_t>(parts) + static_cast<std::uint64_t>(part));
}

BlockHash key_of_nobody(std::size_t request, std::size_t block) noexcept {
  return digest_of(kNoId | static_cast<std::uint64_t>(request),
                   (static_cast<std::uint64_t>(request) << 32U) + static_cast<std::uint64_t>(block));
}

}  // namespace

KeyMaker::KeyMaker(const Trace& trace, std::int64_t block_size, bool hash_output)
    : trace_(trace),
      block_size_(block_size),
      keys_per_id_(trace.kind == TraceKind::ids ? trace.block_size / block_size : 1),
      hash_output_(hash_output),
      hasher_(HashAlgorithm::xxhash_cbor, "kvpool replay") {
  if (trace.kind == TraceKind::ids && trace.block_size % block_size != 0) {
    throw std::invalid_argument(
        fmt::format("block size {} does not divide the {} tokens that an id stands for", block_size, trace.block_size));
  }
}

std::int64_t KeyMaker::num_tokens(std::size_t index) const noexcept {
  return trace_[index].input_tokens + (hash_output_ ? trace_[index].output_tokens : 0);
}

std::int64_t KeyMaker::num_blocks(std::size_t index) const noexcept {
  return (num_tokens(index) + block_size_ - 1) / block_size_;
}

void KeyMaker::make(std::size_t index, RequestKeys& out) {
  out.blocks = num_blocks(index);
  if (trace_.kind == TraceKind::ids) {
    make_from_ids(index, out);
  } else {
    make_from_tokens(index, out);
  }
  const std::int64_t computed = std::max<std::int64_t>(trace_[index].input_tokens - 1, 0);
  out.readable = std::min(out.readable, static_cast<std::size_t>(computed / block_size_));
}

void KeyMaker::make_from_ids(std::size_t index, RequestKeys& out) const {
  const auto full = static_cast<std::size_t>(num_tokens(index) / block_size_);
  const auto prompt_full = static_cast<std::size_t>(trace_[index].input_tokens / block_size_);
  out.keys.resize(full);
  std::size_t block = 0;
  for (const IdRun& run : trace_.runs(index)) {
    for (std::int64_t id = run.first; id < run.first + run.count && block < prompt_full; ++id) {
      for (std::int64_t part = 0; part < keys_per_id_ && block < prompt_full; ++part) {
        out.keys[block++] = key_of_id(id, part, keys_per_id_);
      }
    }
  }
  out.readable = block;
  for (; block < full; ++block) {
    out.keys[block] = key_of_nobody(index, block);
  }
}

void KeyMaker::make_from_tokens(std::size_t index, RequestKeys& out) {
  trace_.prompt(index, tokens_);
  if (hash_output_) {
    const auto output = trace_.output(index);
    tokens_.insert(tokens_.end(), output.begin(), output.end());
  }
  const auto size = static_cast<std::size_t>(block_size_);
  const std::span<const TokenId> tokens(tokens_);
  BlockHash parent;
  out.keys.clear();
  for (std::size_t end = size; end <= tokens.size(); end += size) {
    parent = hasher_.hash_unit(parent, tokens.subspan(end - size, size), {});
    out.keys.push_back(parent);
  }
  out.readable = out.keys.size();
}

}  // namespace kvpool::tools
