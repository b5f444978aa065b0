// The nodes of an event log: what a consumer has read, a producer fills again.
//
// Memory that one thread allocates and another one frees makes both wait for the same lock of the allocator, and comes
// cold each time. So a consumer gives nodes back to the lane that they were filled on, with all they have grown to.
#pragma once

#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include "foundation/aligned_array.hpp"
#include "foundation/cache_line.hpp"
#include "pool/event_node.hpp"
#include "pool/numbered_records.hpp"

namespace kvpool {

/// A node is made only by who found no free one of its kind on any lane, so there are about as many of each kind as
/// were in use at one moment, those in the hands of threads that are just taking one or giving one back included. (A
/// few more where nodes change lanes behind the back of a thread that looks for one.)
template <template <class> class Atom>
class EventNodes final : public EventNodeSource {
 public:
  /// Nodes with smaller numbers keep the memory of their containers while nobody uses them. Those beyond are what a
  /// burst has made, and keep 64 bytes. So does one that has grown beyond what is usual: with time each would.
  static constexpr std::uint32_t kWarmNodes = 4096;
  static constexpr std::size_t kWarmKeys = 1024;
  static constexpr std::size_t kWarmTokens = 8192;

  explicit EventNodes(std::uint32_t lanes) : lanes_(lanes) {}

  /// Lock-free, but for a node that has to be made or has to grow.
  [[nodiscard]] EventNode& take(EventNode::Kind kind, std::uint32_t lane) override {
    std::optional<std::uint32_t> number;
    for (std::size_t i = 0; i < lanes_.size() && !number; ++i) {
      number = free_list((lane + i) % lanes_.size(), kind).pop(cells_);
    }
    if (!number && !(number = cells_.add())) throw std::bad_alloc();
    EventNode& node = cells_[*number].node;
    node.number = *number;
    node.lane = static_cast<std::uint16_t>(lane);
    node.kind = kind;
    if (kind == EventNode::Kind::stored) prepare(node);
    return node;
  }

  /// Of a node that was taken once.
  [[nodiscard]] EventNode& operator[](std::uint32_t number) noexcept { return cells_[number].node; }

  /// Lock-free.
  void give_back(EventNode* nodes) noexcept override {
    std::array<Chain, kOpenChains> open;
    while (nodes != nullptr) {
      EventNode& node = *std::exchange(nodes, nodes->next);
      empty(node);
      const std::uint32_t list = (node.lane * 2U) + (node.kind == EventNode::Kind::stored ? 0U : 1U);
      Chain& chain = open[list % kOpenChains];
      if (chain.list != list) push(std::exchange(chain, {.list = list}));
      if (chain.last == kNone) chain.last = node.number;
      cells_[node.number].next.store(std::exchange(chain.first, node.number), std::memory_order_relaxed);  // [K6]
    }
    for (const Chain& chain : open) push(chain);
  }

 private:
  static constexpr std::uint32_t kNone = FreeRecords<Atom>::kNone;
  static constexpr std::size_t kOpenChains = 16;

  struct Cell {
    EventNode node;
    Atom<std::uint32_t> next{kNone};  ///< of the free list
  };
  struct alignas(kCacheLineBytes) Lane {
    FreeRecords<Atom> stored;
    FreeRecords<Atom> removed;
  };
  /// Linked, not pushed yet.
  struct Chain {
    std::uint32_t list = 0;
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
  };

  [[nodiscard]] FreeRecords<Atom>& free_list(std::size_t lane, EventNode::Kind kind) noexcept {
    return kind == EventNode::Kind::stored ? lanes_[lane].stored : lanes_[lane].removed;
  }
  void push(const Chain& chain) noexcept {
    if (chain.first == kNone) return;
    const auto kind = chain.list % 2 == 0 ? EventNode::Kind::stored : EventNode::Kind::removed;
    free_list(chain.list / 2, kind).push(cells_, chain.first, chain.last);
  }

  /// By who fills it next: the lines are his to write anyway.
  static void prepare(EventNode& node) {
    if (node.stored == nullptr) {
      node.stored = std::make_unique<BlockStoredEvent>();
      return;
    }
    // One name for each member, so that a new one cannot be forgotten here.
    auto& [hashes, parent, tokens, size, lora, medium, lora_name, extra_keys, group, spec_kind, window, session] =
        *node.stored;
    hashes.clear();
    parent.reset();
    tokens.clear();
    size = 0;
    lora.reset();
    if (medium != "GPU") medium = "GPU";
    lora_name.reset();
    extra_keys.reset();
    group.reset();
    spec_kind.reset();
    window.reset();
    session.reset();
  }
  static bool is_large(const EventNode& node) noexcept {
    return node.removed.capacity() > kWarmKeys ||
           (node.stored != nullptr &&
            (node.stored->token_ids.capacity() > kWarmTokens || node.stored->block_hashes.capacity() > kWarmKeys));
  }
  static void empty(EventNode& node) noexcept {
    node.removed.clear();
    node.other.reset();
    if (node.number >= kWarmNodes || is_large(node)) {
      std::vector<BlockKey>().swap(node.removed);
      node.stored.reset();
    }
  }

  AlignedArray<Lane> lanes_;
  NumberedRecords<Atom, Cell> cells_;
};

}  // namespace kvpool
