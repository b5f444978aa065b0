// SHA-256 over pieces that belong to numbered items and arrive in any order of items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kvpool::launch {

/// The digest covers all pieces of item 0, then those of item 1, and so on, each item's in order of arrival.
/// Keeps only what belongs to items behind the first open one. Not thread-safe.
class OrderedDigest {
 public:
  explicit OrderedDigest(std::int64_t num_items);
  ~OrderedDigest();
  OrderedDigest(const OrderedDigest&) = delete;
  OrderedDigest& operator=(const OrderedDigest&) = delete;

  /// Precondition: `item` is in range and not closed.
  void add(std::int64_t item, std::span<const std::byte> piece);
  /// Nothing more comes for `item`. O(bytes that this releases).
  void close(std::int64_t item);
  /// Closes everything; lower-case hex.
  [[nodiscard]] std::string finish();

  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return buffered_; }

 private:
  struct Sha;
  struct Item {
    std::vector<std::byte> bytes;
    bool closed = false;
  };
  void advance();

  std::unique_ptr<Sha> sha_;
  std::int64_t num_items_;
  std::int64_t first_open_ = 0;
  std::map<std::int64_t, Item> later_;  ///< items behind first_open_
  std::size_t buffered_ = 0;
};

}  // namespace kvpool::launch
