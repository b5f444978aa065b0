#include "stress/strict_checker.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "stress/order_search.hpp"

namespace kvpool::stress {
namespace {

/// The whole pool as the sequential specification sees it.
struct PoolModel {
  struct Block {
    std::uint32_t references = 0;
    std::uint32_t key = 0;
    std::uint64_t fence = 0;
    friend auto operator<=>(const Block&, const Block&) = default;
  };
  std::vector<Block> blocks;  // number 0 is the null block
  std::uint64_t passed = 0;
  bool skips_duplicates = false;
  friend auto operator<=>(const PoolModel&, const PoolModel&) = default;

  [[nodiscard]] bool is_free(const Block& block) const { return block.references == 0 && block.fence <= passed; }
  [[nodiscard]] std::size_t num_free() const {
    return static_cast<std::size_t>(
        std::count_if(blocks.begin() + 1, blocks.end(), [this](const Block& block) { return is_free(block); }));
  }
  [[nodiscard]] bool has_key(std::uint32_t key) const {
    return std::any_of(blocks.begin(), blocks.end(), [key](const Block& block) { return block.key == key; });
  }
};

/// Does what the call says it did; false: it cannot have.
bool apply(PoolModel& pool, const WholeCall& call) {
  switch (call.kind) {
    case CallKind::allocate:
      if (!call.done) return pool.num_free() < call.count;
      for (const std::uint32_t number : call.blocks) {
        if (!pool.is_free(pool.blocks[number])) return false;
        pool.blocks[number].references = 1;
        pool.blocks[number].key = 0;
      }
      return true;
    case CallKind::pin:
    case CallKind::pin_prefix:
      for (std::size_t i = 0; i < call.blocks.size(); ++i) {
        if (pool.blocks[call.blocks[i]].key != call.keys[i]) return false;
        ++pool.blocks[call.blocks[i]].references;
      }
      return call.done || !pool.has_key(call.keys[call.blocks.size()]);
    case CallKind::touch:
      if (!call.done) return false;  // nothing here makes it fail
      for (const std::uint32_t number : call.blocks) ++pool.blocks[number].references;
      return true;
    case CallKind::publish:
      for (std::size_t i = 0; i < call.blocks.size(); ++i) {
        PoolModel::Block& block = pool.blocks[call.blocks[i]];
        const bool refused = pool.skips_duplicates && pool.has_key(call.keys[i]);
        if (block.references == 0 || block.key != 0 || refused) return !call.done;
        if (!call.done) return false;
        block.key = call.keys[i];
      }
      return true;
    case CallKind::release:
      for (const std::uint32_t number : call.blocks) {
        PoolModel::Block& block = pool.blocks[number];
        if (block.references == 0) return false;
        --block.references;
        block.fence = std::max(block.fence, call.fence);
      }
      return true;
    case CallKind::unpublish: {
      PoolModel::Block& block = pool.blocks[call.blocks[0]];
      if (call.done != (block.key != 0)) return false;
      block.key = 0;
      return true;
    }
    case CallKind::evict:
      for (const std::uint32_t number : call.blocks) pool.blocks[number].key = 0;
      return true;
    case CallKind::move: {
      PoolModel::Block& source = pool.blocks[call.blocks[0]];
      PoolModel::Block& target = pool.blocks[call.blocks[1]];
      if (call.done != (source.key != 0 && target.key == 0 && target.references > 0)) return false;
      if (call.done) target.key = std::exchange(source.key, 0);
      return true;
    }
    case CallKind::advance_fence: pool.passed = std::max(pool.passed, call.fence); return true;
  }
  return false;
}

using StrictSearch = OrderSearch<PoolModel, WholeCall>;

}  // namespace

Strictness check_strictly(const History& history, std::uint32_t usable_blocks) {
  std::vector<WholeCall> calls = history.calls;
  std::sort(calls.begin(), calls.end(), [](const WholeCall& a, const WholeCall& b) { return a.invoked < b.invoked; });
  PoolModel fresh;
  fresh.blocks.resize(std::size_t{usable_blocks} + 1);
  fresh.skips_duplicates = history.skips_duplicates;
  StrictSearch::States states{fresh};
  // Calls that overlap with nothing before them begin a new segment: whatever came before is over.
  for (std::size_t begin = 0; begin < calls.size();) {
    Moment open_until = calls[begin].returned;
    std::size_t end = begin + 1;
    while (end < calls.size() && calls[end].invoked < open_until) {
      open_until = std::max(open_until, calls[end].returned);
      ++end;
    }
    if (end - begin > 64) return Strictness::undecided;
    const std::vector<WholeCall> segment(calls.begin() + static_cast<std::ptrdiff_t>(begin),
                                         calls.begin() + static_cast<std::ptrdiff_t>(end));
    states = StrictSearch(segment).run(states);
    if (states.empty()) return Strictness::not_linearizable;
    begin = end;
  }
  return Strictness::linearizable;
}

}  // namespace kvpool::stress
