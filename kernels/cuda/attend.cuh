// Partial attention of a row block over a range of keys: O normalised within the range, and its LSE.
//
// One thread block serves up to kRows rows that share the K and V rows of one KV head. Keys come in tiles through a
// ring of kStages stages in shared memory; K and V of a tile are separate copy groups, so that q . k starts before V
// lands.
//
//   tile        K [kTile][kWidth], V [kTile][kWidth]       copied 8 elements at a time, cp.async
//   q . k       kLanes threads per key, 8 elements each     -> scores [kRows][kTile]
//   softmax     one warp per row, exp2, factor for what was summed before
//   p * v       kLanes threads per key, keys shared out to kThreads / kLanes groups, sums joined at the end
//
// Keys that no row needs are never read (zeros take their place); keys that only some rows need are left out of the
// sums of the others, not multiplied by 0: the row may hold NaN.
#pragma once

#include "kernels/cuda/query_rows.cuh"

namespace kvpool::kernels::gpu {

template <class Cache, int kLanes, int kRows>
struct AttendBlock {
  static constexpr int kWidth = kLanes * 8;             // elements of a row in shared memory
  static constexpr int kTile = kLanes == 32 ? 32 : 64;  // keys
  static constexpr int kGroups = kThreads / kLanes;     // keys at work at the same time
  static constexpr int kChunk = 8 * static_cast<int>(sizeof(Cache));

  static constexpr std::size_t kRowExtent = kRows;
  static constexpr std::size_t kTileExtent = kTile / 32;

  struct Shared {
    Cache* k;             // [kStages][kTile][kWidth]
    Cache* v;             // [kStages][kTile][kWidth], right behind k
    float* scores;        // [kRows][kTile]
    float* factor;        // [kRows]
    float* sum;           // [kRows]
    float* max;           // [kRows]
    std::int32_t* pages;  // [kStages + 1][kTile]
  };

  static constexpr int shared_bytes() {
    return 2 * kStages * kTile * kWidth * static_cast<int>(sizeof(Cache)) + kRows * kTile * 4 + 3 * 16 +
           (kStages + 1) * kTile * 4;
  }

  const AttendParams& p;
  const WorkItem item;
  const RowBlock block;
  const int head;  // KV head
  Shared s;
  int lo[kRowExtent];  // keys of each row: [lo, hi)
  int hi[kRowExtent];
  int first;  // keys any row needs: [first, last)
  int last;
  int start;  // first key of tile 0

  KVPOOL_DEVICE explicit AttendBlock(const AttendParams& params)
      : p(params), item(params.items[block_x()]), block(params.blocks[item.block]), head(block_y()) {
    SharedCarver carver;
    s.k = carver.carve<Cache>(2 * kStages * kTile * kWidth);
    s.v = s.k + kStages * kTile * kWidth;
    s.scores = carver.carve<float>(kRows * kTile);
    s.factor = carver.carve<float>(kRows);
    s.sum = carver.carve<float>(kRows);
    s.max = carver.carve<float>(kRows);
    s.pages = carver.carve<std::int32_t>((kStages + 1) * kTile);
    first = item.end;
    last = item.begin;
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const KeyRange keys = keys_of_row(p, block, r);
      lo[r] = keys.lo;
      hi[r] = keys.hi;
      const int from = lo[r] > item.begin ? lo[r] : item.begin;
      const int to = hi[r] < item.end ? hi[r] : item.end;
      if (from >= to) continue;
      first = from < first ? from : first;
      last = to > last ? to : last;
    }
    start = first < last ? item.begin + (first - item.begin) / kTile * kTile : item.begin;
  }

  KVPOOL_DEVICE int num_tiles() const { return first < last ? (last - start + kTile - 1) / kTile : 0; }
  KVPOOL_DEVICE bool needed(int key) const { return key >= first && key < last; }

  /// Page numbers of a tile's keys into their place of the ring; keys nobody needs get page 0, which is not read.
  KVPOOL_DEVICE void load_pages(int tile) {
    const std::int32_t* row = p.table + block.sequence * p.table_stride;
    for (int i = thread_index(); i < kTile; i += kThreads) {
      const int key = start + tile * kTile + i;
      const bool valid = needed(key) || KVPOOL_PLANTED_BUG == 4;
      s.pages[tile % (kStages + 1) * kTile + i] = valid ? row[key / p.page_size] : 0;
    }
  }

  KVPOOL_DEVICE void copy_rows(Cache* stage, const Rows& rows, int dim, int tile) {
    const auto* base = static_cast<const Cache*>(rows.data) + head * rows.head_stride;
    const std::int32_t* pages = s.pages + tile % (kStages + 1) * kTile;
    for (int i = thread_index(); i < kTile * kLanes; i += kThreads) {
      const int row = i / kLanes;
      const int at = i % kLanes * 8;
      if (at >= dim) continue;
      const int key = start + tile * kTile + row;
      const bool valid = needed(key) || KVPOOL_PLANTED_BUG == 4;
      const std::int64_t offset = static_cast<std::int64_t>(pages[row]) * rows.page_stride +
                                  static_cast<std::int64_t>(key % p.page_size) * rows.token_stride + at;
      copy_async<kChunk>(stage + row * kWidth + at, valid ? base + offset : base, valid);
    }
    copy_async_commit();
  }

  /// Starts the copies of a tile; past the last one only empty groups are committed, so that counts stay the same.
  KVPOOL_DEVICE void fetch(int tile, int tiles) {
    const int stage = tile % kStages * kTile * kWidth;
    if (tile < tiles) {
      copy_rows(s.k + stage, p.k, p.dim, tile);
      copy_rows(s.v + stage, p.v, p.dim_v, tile);
    } else {
      copy_async_commit();
      copy_async_commit();
    }
  }

  KVPOOL_DEVICE void load_queries(float (&q)[kRowExtent][8]) const {
    const int at = thread_index() % kLanes * 8;
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const bool real = r < block.rows && at < p.dim;
      const int row = real ? r : 0;
      const std::int64_t offset = query_offset(p, block, head, row) + at;
      KVPOOL_UNROLL
      for (int d = 0; d < 8; ++d) q[r][d] = real ? load_value(p.q, offset + d) : 0.0F;
    }
  }

  KVPOOL_DEVICE void dot_products(const float (&q)[kRowExtent][8], const Cache* k) const {
    const int lane = thread_index() % kLanes;
    KVPOOL_UNROLL_2
    for (int i = thread_index() / kLanes; i < kTile; i += kGroups) {
      float key[8];
      KVPOOL_UNROLL
      for (int d = 0; d < 8; ++d) key[d] = 0;
      if (lane * 8 < p.dim) widen8(k + i * kWidth + lane * 8, key);
      KVPOOL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        float dot = 0;
        KVPOOL_UNROLL
        for (int d = 0; d < 8; ++d) dot += q[r][d] * key[d];
        KVPOOL_UNROLL
        for (int mask = kLanes / 2; mask > 0; mask /= 2) dot += shuffle_xor(dot, mask);
        if (lane == 0) s.scores[r * kTile + i] = dot;
      }
    }
  }

  /// The logit of a key in units of log2, -infinity where the row does not see it.
  KVPOOL_DEVICE float logit(int row, int key, float dot) const {
    if (key < item.begin || key >= item.end || key < lo[row] || key >= hi[row]) return minus_infinity();
    return log2_logit(p, dot, p.scale * p.k_scale[head], query_head_of_row(p, block, head, row), key,
                      {lo[row], hi[row]});
  }

  /// Warp r turns row r's scores into weights and keeps its maximum and sum.
  KVPOOL_DEVICE void softmax(int tile, float& max, float& sum) {
    const int lane = thread_index() % 32;
    const int warp = thread_index() / 32;
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r % (kThreads / 32) != warp) continue;
      float x[kTileExtent];
      float top = max;
      KVPOOL_UNROLL
      for (int j = 0; j < kTile / 32; ++j) {
        const int i = j * 32 + lane;
        x[j] = logit(r, start + tile * kTile + i, s.scores[r * kTile + i]);
        top = x[j] > top ? x[j] : top;
      }
      KVPOOL_UNROLL
      for (int mask = 16; mask > 0; mask /= 2) {
        const float other = shuffle_xor(top, mask);
        top = other > top ? other : top;
      }
      if (KVPOOL_PLANTED_BUG == 7) {
        if (lane == 0) s.max[r] = top;
        shuffle_xor(top, 1);  // taken for a fence, which it is not
        top = s.max[r];
      }
      const float base = top == minus_infinity() ? 0.0F : top;
      float total = 0;
      KVPOOL_UNROLL
      for (int j = 0; j < kTile / 32; ++j) {
        const float weight = fast_exp2(x[j] - base);
        s.scores[r * kTile + j * 32 + lane] = weight;
        total += weight;
      }
      KVPOOL_UNROLL
      for (int mask = 16; mask > 0; mask /= 2) total += shuffle_xor(total, mask);
      const float factor = max == minus_infinity() ? 0.0F : fast_exp2(max - base);
      if (lane == 0) s.factor[r] = factor;
      sum = sum * factor + total;
      max = top;
    }
  }

  KVPOOL_DEVICE void add_values(float (&acc)[kRowExtent][8], const Cache* v, int tile) const {
    const int at = thread_index() % kLanes * 8;
    const int tile_first = start + tile * kTile;
    const int share = thread_index() / kLanes * (kTile / kGroups);  // keys [share, + kTile / kGroups) of the tile
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float factor = s.factor[r];
      KVPOOL_UNROLL
      for (int d = 0; d < 8; ++d) acc[r][d] *= factor;
    }
    if (at >= p.dim_v) return;
    for (int i = share; i < share + kTile / kGroups; ++i) {
      const int key = tile_first + i;
      if (!needed(key)) continue;
      float value[8];
      widen8(v + i * kWidth + at, value);
      KVPOOL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (key < lo[r] || key >= hi[r]) continue;
        const float weight = s.scores[r * kTile + i];
        KVPOOL_UNROLL
        for (int d = 0; d < 8; ++d) acc[r][d] += weight * value[d];
      }
    }
  }

  /// Sums of all groups, in order, through the memory of the stages; then O and LSE of each row.
  KVPOOL_DEVICE void write_partials(const float (&acc)[kRowExtent][8], float max, float sum) {
    const int lane = thread_index() % 32;
    const int warp = thread_index() / 32;
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r % (kThreads / 32) == warp && lane == 0) {
        s.sum[r] = sum;
        s.max[r] = max;
      }
    }
    copy_async_wait<0>();
    block_barrier();
    auto* joined = reinterpret_cast<float*>(s.k);  // [kRows][kGroups][kWidth] fits the stages of K and V
    const int at = thread_index() % kLanes * 8;
    const int group = thread_index() / kLanes;
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KVPOOL_UNROLL
      for (int d = 0; d < 8; ++d) joined[(r * kGroups + group) * kWidth + at + d] = acc[r][d];
    }
    block_barrier();
    if (KVPOOL_PLANTED_BUG == 8 && thread_index() == 0) p.partials.out[0] += 0.0F;  // every block, without an atomic
    const std::int64_t base = first_partial(item.slot, p.num_kv_heads, head, kRows);
    for (int r = 0; r < block.rows; ++r) {
      const float total = s.sum[r];
      const float inverse = fast_reciprocal(total);
      const bool empty = s.max[r] == minus_infinity() && total == 0;
      for (int d = thread_index(); d < p.dim_v; d += kThreads) {
        float value = 0;
        for (int g = 0; g < kGroups; ++g) value += joined[(r * kGroups + g) * kWidth + d];
        p.partials.out[(base + r) * p.dim_v + d] = empty ? 0.0F : value * inverse;
      }
      if (thread_index() == 0) p.partials.lse[base + r] = empty ? minus_infinity() : (s.max[r] + log2f(total)) * kLn2;
    }
  }

  /// The barrier of the main loop.
  KVPOOL_DEVICE static void step_barrier() {
    if (KVPOOL_PLANTED_BUG == 3 && thread_index() < 32) {
      block_barrier();
    } else {
      block_barrier();
    }
  }

  KVPOOL_DEVICE void run() {
    const int tiles = num_tiles();
    float q[kRowExtent][8];
    float acc[kRowExtent][8];
    KVPOOL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KVPOOL_UNROLL
      for (int d = 0; d < 8; ++d) acc[r][d] = 0;
    }
    float max = minus_infinity();
    float sum = 0;
    for (int tile = 0; tile < kStages; ++tile) load_pages(tile);
    load_queries(q);
    block_barrier();
    for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile, tiles);
    for (int tile = 0; tile < tiles; ++tile) {
      if (KVPOOL_PLANTED_BUG == 1) {
        copy_async_wait<2 * (kStages - 2) + 2>();
      } else {
        copy_async_wait<2 * (kStages - 2) + 1>();  // K of this tile has landed
      }
      if (KVPOOL_PLANTED_BUG == 5) fetch(tile + kStages - 1, tiles);
      step_barrier();  // everybody's part of K is here, and everybody has left the stage that is refilled next
      if (KVPOOL_PLANTED_BUG != 5) fetch(tile + kStages - 1, tiles);
      load_pages(tile + kStages);
      const int stage = tile % kStages * kTile * kWidth;
      dot_products(q, s.k + stage);
      if (KVPOOL_PLANTED_BUG == 6 && thread_index() == 0) s.pages[(kStages + 1) * kTile] = 1;  // past the last array
      block_barrier();
      softmax(tile, max, sum);
      copy_async_wait<2 * (kStages - 1)>();  // V of this tile has landed
      if (KVPOOL_PLANTED_BUG != 2) block_barrier();
      add_values(acc, s.v + stage, tile);
    }
    write_partials(acc, max, sum);
  }
};

template <class Cache, int kLanes, int kRows>
KVPOOL_DEVICE void attend_block(const AttendParams& params) {
  if (params.items[block_x()].block < 0) return;  // the unused end of a list of fixed length
  AttendBlock<Cache, kLanes, kRows>(params).run();
}

}  // namespace kvpool::kernels::gpu
