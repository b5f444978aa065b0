// A doubly linked list of block numbers over one array: the free list of the rivals.
#pragma once

#include <cstdint>
#include <vector>

namespace kvpool::tools {

/// Block 0 is the sentinel, as the null block never is in the list. Not thread-safe.
class BlockList {
 public:
  static constexpr std::uint32_t kEnd = 0;

  explicit BlockList(std::uint32_t num_blocks) : links_(num_blocks) { links_[kEnd] = {kEnd, kEnd}; }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t front() const noexcept { return links_[kEnd].next; }

  void insert_after(std::uint32_t place, std::uint32_t block) noexcept {
    const std::uint32_t next = links_[place].next;
    links_[block] = {place, next};
    links_[place].next = block;
    links_[next].previous = block;
    ++size_;
  }
  void push_front(std::uint32_t block) noexcept { insert_after(kEnd, block); }
  void push_back(std::uint32_t block) noexcept { insert_after(links_[kEnd].previous, block); }

  void erase(std::uint32_t block) noexcept {
    const Links links = links_[block];
    links_[links.previous].next = links.next;
    links_[links.next].previous = links.previous;
    --size_;
  }

  /// Precondition: size() > 0.
  std::uint32_t pop_front() noexcept {
    const std::uint32_t block = front();
    erase(block);
    return block;
  }

 private:
  struct Links {
    std::uint32_t previous = 0;
    std::uint32_t next = 0;
  };
  std::vector<Links> links_;
  std::uint32_t size_ = 0;
};

}  // namespace kvpool::tools
