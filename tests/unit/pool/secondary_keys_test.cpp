#include "pool/secondary_keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace kvpool {
namespace {

using Store = SecondaryKeys<std::atomic>;

Store::View view_of(std::uint64_t number) {
  Store::View view;
  view.key.digest = {number, number, number, number};
  view.key.shape = static_cast<std::uint32_t>(number);
  view.block = static_cast<std::uint32_t>(number);
  view.version = static_cast<std::uint32_t>(number);
  view.ordinal = number;
  return view;
}

TEST(SecondaryKeys, RecordIsReadableWhileItIsFilled) {
  Store store(4);
  const auto number = store.acquire();
  ASSERT_TRUE(number.has_value());
  EXPECT_FALSE(store.read(*number).has_value());
  store.fill(*number, view_of(3));
  const auto view = store.read(*number);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->key, view_of(3).key);
  store.release(*number);
  EXPECT_FALSE(store.read(*number).has_value());
  EXPECT_EQ(store.acquire(), number);  // recycled
}

TEST(SecondaryKeys, ManyRecordsInManyChunksAreDistinct) {
  Store store(2);
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    const auto number = store.acquire();
    ASSERT_EQ(number, i);
    store.fill(*number, view_of(i));
  }
  for (std::uint32_t i = 0; i < 1'000; ++i) ASSERT_EQ(store.read(i)->ordinal, i);
}

TEST(SecondaryKeys, DetachTakesTheWholeListNewestFirst) {
  Store store(4);
  for (std::uint32_t i = 0; i < 3; ++i) store.link(2, *store.acquire());
  std::vector<std::uint32_t> records;
  for (std::uint32_t at = store.detach(2); at != Store::kNone; at = store.next(at)) records.push_back(at);
  EXPECT_EQ(records, (std::vector<std::uint32_t>{2, 1, 0}));
  EXPECT_EQ(store.detach(2), Store::kNone);
  EXPECT_EQ(store.detach(1), Store::kNone);
}

TEST(SecondaryKeys, ReadersNeverSeeTwoLivesOfOneRecord) {
  Store store(4);
  store.release(*store.acquire());  // the first chunk exists before anybody reads
  std::atomic<bool> stop{false};
  std::array<std::thread, 2> writers;
  for (std::size_t t = 0; t < writers.size(); ++t) {
    writers[t] = std::thread([&, t] {
      for (std::uint64_t i = 1; i < 20'000; ++i) {
        const auto number = store.acquire();
        store.fill(*number, view_of(i * 2 + t));
        store.release(*number);
      }
    });
  }
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::uint32_t number = 0; number < 2; ++number) {
        const auto view = store.read(number);
        if (!view) continue;
        ASSERT_EQ(view->key, view_of(view->ordinal).key);
        ASSERT_EQ(view->block, view->version);
      }
    }
  });
  for (auto& writer : writers) writer.join();
  stop.store(true, std::memory_order_relaxed);
  reader.join();
}

}  // namespace
}  // namespace kvpool
