// A program that takes either pool: the lock-free one, or the one of lists under locks behind the same member names.
#include <kvpool/pool/locked_block_pool.hpp>

#include <array>
#include <cstdio>

/// Publishes a block, gives it back, and finds, pins and releases it again. False when something was lost.
template <class Pool>
bool reuse_one_block() {
  kvpool::BlockPoolOptions options;
  options.num_blocks = 64;
  Pool pool(options);
  kvpool::BlockKey key;
  key.hash.size = 32;
  key.hash.bytes[0] = 7;
  std::array<kvpool::BlockId, 3> blocks;
  if (!pool.get_new_blocks(blocks) || !pool.publish(blocks[1], key, 16) || !pool.free_blocks(blocks)) return false;
  std::optional<typename Pool::ReservationType> reservation = pool.try_reserve(1);
  const auto found = pool.find(key);
  if (!reservation || !found || !pool.pin(*found, key, *reservation) || reservation->remaining() != 0) return false;
  return found->id == blocks[1] && pool.free_blocks(std::array{*found}) && pool.num_free_blocks() == 63;
}

int main() {
  const bool good = reuse_one_block<kvpool::BlockPool>() && reuse_one_block<kvpool::LockedBlockPool>();
  std::printf("a block was %s by both pools\n", good ? "reused" : "not reused");
  return good ? 0 : 1;
}
