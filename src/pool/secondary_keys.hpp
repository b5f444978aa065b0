// Further keys of a block beside the one in its line: rare, so kept apart and created on first use.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "block/key_words.hpp"
#include "foundation/aligned_array.hpp"
#include "pool/numbered_records.hpp"

namespace kvpool {

/// Records of secondary keys, numbered from 0, with a free list, and one list of records per block.
///
/// A record is valid while its block is HASHED and the block's registration is the one the record was made
/// for. Records are recycled; `stamp` is odd while a record is free and lets a reader notice that it read
/// two lives of one record.
template <template <class> class Atom>
class SecondaryKeys {
 public:
  static constexpr std::uint32_t kNone = FreeRecords<Atom>::kNone;

  struct Record {
    Atom<std::uint64_t> digest[4]{};
    Atom<std::uint64_t> ordinal{0};
    Atom<std::uint32_t> shape{0};
    Atom<std::uint32_t> block{0};
    Atom<std::uint32_t> version{0};   ///< registration of the block that the key belongs to
    Atom<std::uint32_t> slot{0};      ///< position in the index
    Atom<std::uint32_t> next{kNone};  ///< of the block's list, or of the free list
    Atom<std::uint32_t> stamp{1};
  };

  /// What a reader sees of a valid record.
  struct View {
    KeyWords key;
    std::uint32_t block = 0;
    std::uint32_t version = 0;
    std::uint64_t ordinal = 0;
  };

  explicit SecondaryKeys(std::uint32_t num_blocks) : heads_(num_blocks) {
    for (auto& head : heads_) head.store(kNone, std::memory_order_relaxed);
  }
  SecondaryKeys(const SecondaryKeys&) = delete;
  SecondaryKeys& operator=(const SecondaryKeys&) = delete;

  /// A record for the caller alone; empty when the number space is used up. Lock-free.
  [[nodiscard]] std::optional<std::uint32_t> acquire() {
    const std::optional<std::uint32_t> former = free_.pop(records_);
    return former ? former : records_.add();
  }

  /// Fills a record of the caller and makes it readable.
  void fill(std::uint32_t number, const View& view) noexcept {
    Record& r = record(number);
    for (std::size_t i = 0; i < 4; ++i) r.digest[i].store(view.key.digest[i], std::memory_order_release);  // [K4]
    r.shape.store(view.key.shape, std::memory_order_release);                                              // [K4]
    r.ordinal.store(view.ordinal, std::memory_order_release);                                              // [K4]
    r.block.store(view.block, std::memory_order_release);                                                  // [K4]
    r.version.store(view.version, std::memory_order_release);                                              // [K4]
    r.stamp.store(r.stamp.load(std::memory_order_relaxed) + 1, std::memory_order_release);                 // [K5]
  }

  /// A consistent copy, or empty when the record is free or was recycled meanwhile. Wait-free.
  [[nodiscard]] std::optional<View> read(std::uint32_t number) const noexcept {
    const Record& r = record(number);
    const std::uint32_t stamp = r.stamp.load(std::memory_order_acquire);  // [K5]
    if ((stamp & 1U) != 0) return std::nullopt;
    View view;
    for (std::size_t i = 0; i < 4; ++i) view.key.digest[i] = r.digest[i].load(std::memory_order_acquire);  // [K4]
    view.key.shape = r.shape.load(std::memory_order_acquire);                                              // [K4]
    view.ordinal = r.ordinal.load(std::memory_order_acquire);                                              // [K4]
    view.block = r.block.load(std::memory_order_acquire);                                                  // [K4]
    view.version = r.version.load(std::memory_order_acquire);                                              // [K4]
    if (r.stamp.load(std::memory_order_relaxed) != stamp) return std::nullopt;                             // [K5]
    return view;
  }

  void set_slot(std::uint32_t number, std::uint32_t slot) noexcept {
    record(number).slot.store(slot, std::memory_order_relaxed);  // [K3]
  }
  [[nodiscard]] std::uint32_t slot(std::uint32_t number) const noexcept {
    return record(number).slot.load(std::memory_order_relaxed);  // [K3]
  }

  /// Gives a record back that is in no list and in no index slot. Lock-free.
  void release(std::uint32_t number) noexcept {
    Record& r = record(number);
    const std::uint32_t stamp = r.stamp.load(std::memory_order_relaxed);  // [H]
    r.stamp.store((stamp + 1) | 1U, std::memory_order_release);           // [K5] odd, also if it was never filled
    free_.push(records_, number, number);
  }

  /// Hangs a record into its block's list. Lock-free.
  void link(std::uint32_t block, std::uint32_t number) noexcept {
    Atom<std::uint32_t>& head = heads_[block];
    std::uint32_t first = head.load(std::memory_order_relaxed);  // [H]
    do {
      record(number).next.store(first, std::memory_order_relaxed);
    } while (!head.compare_exchange_weak(first, number, std::memory_order_acq_rel, std::memory_order_relaxed));  // [K3]
  }

  /// Takes the whole list of a block, which belongs to the caller from then on; newest first, linked by
  /// next(). Always an exchange, also of an empty list: who ends a registration and then detaches, and who
  /// links a record and then looks whether the registration has ended, must not miss each other. Wait-free.
  [[nodiscard]] std::uint32_t detach(std::uint32_t block) noexcept {
    return heads_[block].exchange(kNone, std::memory_order_acq_rel);  // [K3]
  }
  [[nodiscard]] std::uint32_t first(std::uint32_t block) const noexcept {
    return heads_[block].load(std::memory_order_acquire);  // [K3]
  }
  [[nodiscard]] std::uint32_t next(std::uint32_t number) const noexcept {
    return record(number).next.load(std::memory_order_relaxed);  // [K3]
  }

 private:
  [[nodiscard]] Record& record(std::uint32_t number) noexcept { return records_[number]; }
  [[nodiscard]] const Record& record(std::uint32_t number) const noexcept { return records_[number]; }

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
  AlignedArray<Atom<std::uint32_t>> heads_;
  NumberedRecords<Atom, Record> records_;
  FreeRecords<Atom> free_;
};

}  // namespace kvpool
