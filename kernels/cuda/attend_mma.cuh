// Partial attention on tensor cores: blocks of up to 16 rows that share the K and V rows of one KV head.
//
//   tile        32 keys, K and V in one copy group, kDepth of them under way
//   q . k       each warp takes 8 keys and all 16 rows      -> scores [16][32], masked, in units of log2
//   softmax     in fragments, by every warp for itself: all hold the same maxima and sums
//   p * v       each warp takes a quarter of the columns; weights rounded to the 16-bit type of the product
//
// Fragments are those of mma.m16n8k16: thread 4 g + t of a warp holds rows g and g + 8 of A and C. Sums over k do not
// depend on the order of k, and columns may stand anywhere as long as one knows where: so a thread takes 16
// neighbouring elements of a key, and neighbouring columns of V, with few wide loads. Rows are stored with their
// 16-byte chunks permuted by row number, so that those loads meet no bank twice.
//
// Products are bf16 for bf16 caches and fp16 for all others (fp8 is exact in fp16). Queries of another type are taken
// in two halves, high and low; for fp16 they are scaled to its range by a power of two per row.
//
// In tiles where some rows miss keys that others see, p * v is done one by one: a stale NaN must not reach a row
// through a weight of 0.
#pragma once

#include "kernels/cuda/query_rows.cuh"

namespace kvpool::kernels::gpu {

template <class Cache, int kBlocks, int kBlocksV, bool kLatent>
struct MmaBlock {
  using Compute = typename ProductType<Cache>::type;
  static constexpr int kWidth = kBlocks * 64;    // elements of a K row in shared memory
  static constexpr int kWidthV = kBlocksV * 64;  // columns of the result
  static constexpr int kRowV = kLatent ? kWidth : kWidthV;
  static constexpr int kTile = 32;
  static constexpr int kDepth = kBlocks >= 4 ? 2 : 3;
  static constexpr int kScoreRow = kTile + 8;                // a multiple of 8 banks apart
  static constexpr int kShare = kWidthV / 4;                 // columns of a warp
  static constexpr int kPer = kShare < 64 ? kShare / 8 : 8;  // neighbouring columns of a thread
  static constexpr int kPieces = kShare / (8 * kPer);
  static constexpr std::size_t kColumns = kPieces * kPer;
  static constexpr std::size_t kPairs = kPer / 2;
  static constexpr int kChunk = 8 * static_cast<int>(sizeof(Cache));

  struct Shared {
    Cache* k;             // [kDepth][kTile][kWidth]
    Cache* v;             // [kDepth][kTile][kWidthV]; latent: the K rows
    Compute* q_high;      // [kMmaRows][kWidth]
    Compute* q_low;       // the same; not for latent attention
    float* scores;        // [kMmaRows][kScoreRow]
    float* q_unit;        // [kMmaRows]: what one unit of the stored query is worth
    std::int32_t* pages;  // [kDepth + 1][kTile]
  };

  static constexpr int shared_bytes() {
    const int rows = kDepth * kTile * (kLatent ? kWidth : kWidth + kWidthV) * static_cast<int>(sizeof(Cache));
    return rows + (kLatent ? 1 : 2) * kMmaRows * kWidth * 2 + kMmaRows * kScoreRow * 4 + kMmaRows * 4 +
           (kDepth + 1) * kTile * 4;
  }

  const AttendParams& p;
  const WorkItem item;
  const RowBlock block;
  const int head;  // KV head
  const int warp;
  const int g;  // row of the fragments, and g + 8
  const int t;
  Shared s;
  KeyRange keys[2];  // of rows g and g + 8
  int first;         // keys any row needs: [first, last)
  int last;
  int start;  // first key of tile 0
  bool two_halves;

  KVPOOL_DEVICE explicit MmaBlock(const AttendParams& params)
      : p(params),
        item(params.items[block_x()]),
        block(params.blocks[item.block]),
        head(block_y()),
        warp(thread_index() / 32),
        g(thread_index() % 32 / 4),
        t(thread_index() % 4) {
    SharedCarver carver;
    s.k = carver.carve<Cache>(kDepth * kTile * kWidth);
    s.v = kLatent ? s.k : carver.carve<Cache>(kDepth * kTile * kWidthV);
    s.q_high = carver.carve<Compute>(kMmaRows * kWidth);
    s.q_low = kLatent ? s.q_high : carver.carve<Compute>(kMmaRows * kWidth);
    s.scores = carver.carve<float>(kMmaRows * kScoreRow);
    s.q_unit = carver.carve<float>(kMmaRows);
    s.pages = carver.carve<std::int32_t>((kDepth + 1) * kTile);
    two_halves = !kLatent && p.q.type != (kIsBf16<Compute> ? ValueType::bf16 : ValueType::fp16) &&
                 (kIsBf16<Compute> || p.q.type == ValueType::fp32);
    keys[0] = keys_of_row(p, block, g);
    keys[1] = keys_of_row(p, block, g + 8);
    const int from = keys_of_row(p, block, 0).lo;  // positions rise with the row
    const int to = keys_of_row(p, block, block.rows - 1).hi;
    first = from > item.begin ? from : item.begin;
    last = to < item.end ? to : item.end;
    start = first < last ? item.begin + (first - item.begin) / kTile * kTile : item.begin;
  }

  KVPOOL_DEVICE int num_tiles() const { return first < last ? (last - start + kTile - 1) / kTile : 0; }
  KVPOOL_DEVICE bool needed(int key) const { return key >= first && key < last; }

  /// Place of an element in a row of kRow elements of T whose chunks are permuted.
  template <class T, int kRow>
  static KVPOOL_DEVICE int place(int row, int element) {
    constexpr int kElements = 16 / static_cast<int>(sizeof(T));
    constexpr int kMask = kRow / kElements % 8 == 0 ? 7 : 3;
    const int turn = (sizeof(T) == 2 ? row : (row & 6) ^ (row << 2)) & kMask;
    return row * kRow + (((element / kElements) ^ turn) * kElements) + element % kElements;
  }

  KVPOOL_DEVICE void load_pages(int tile) {
    const std::int32_t* row = p.table + block.sequence * p.table_stride;
    for (int i = thread_index(); i < kTile; i += kThreads) {
      const int key = start + tile * kTile + i;
      s.pages[tile % (kDepth + 1) * kTile + i] = needed(key) ? row[key / p.page_size] : 0;
    }
  }

  /// Keys nobody needs and columns past the row's end become zeros.
  template <int kRow>
  KVPOOL_DEVICE void copy_rows(Cache* stage, const Rows& rows, int dim, int tile) {
    const auto* base = static_cast<const Cache*>(rows.data) + head * rows.head_stride;
    const std::int32_t* pages = s.pages + tile % (kDepth + 1) * kTile;
    for (int i = thread_index(); i < kTile * kRow / 8; i += kThreads) {
      const int row = i / (kRow / 8);
      const int at = i % (kRow / 8) * 8;
      const int key = start + tile * kTile + row;
      const bool valid = needed(key) && at < dim;
      const std::int64_t offset = static_cast<std::int64_t>(pages[row]) * rows.page_stride +
                                  static_cast<std::int64_t>(key % p.page_size) * rows.token_stride + at;
      copy_async<kChunk>(stage + place<Cache, kRow>(row, at), valid ? base + offset : base, valid);
    }
  }

  KVPOOL_DEVICE void fetch(int tile, int tiles) {
    if (tile < tiles) {
      const int stage = tile % kDepth * kTile;
      copy_rows<kWidth>(s.k + stage * kWidth, p.k, p.dim, tile);
      if (!kLatent) copy_rows<kWidthV>(s.v + stage * kWidthV, p.v, p.dim_v, tile);
    }
    copy_async_commit();
  }

  /// Eight threads a row. Rows past the block's last are zeros.
  KVPOOL_DEVICE void load_queries() {
    const int row = thread_index() / 8;
    const int lane = thread_index() % 8;
    const bool real = row < block.rows;
    const std::int64_t offset = real ? query_offset(p, block, head, row) : 0;
    float factor = 1;
    float unit = 1;
    if (!kIsBf16<Compute> && p.q.type != ValueType::fp16) {
      float top = 0;
      for (int at = lane * 8; at < kWidth; at += 64) {
        for (int d = 0; d < 8 && real && at < p.dim; ++d) top = fmaxf(top, fabsf(load_value(p.q, offset + at + d)));
      }
      KVPOOL_UNROLL
      for (int mask = 4; mask > 0; mask /= 2) top = fmaxf(top, shuffle_xor(top, mask));
      const auto exponent = static_cast<int>(bit_cast_to<std::uint32_t>(top) >> 23);
      if (exponent < 255) {  // to at most 2^15; infinities and NaN stay what they are
        const int bounded = exponent < 15 ? 15 : exponent;
        factor = bit_cast_to<float>(static_cast<std::uint32_t>(bounded > 254 ? 14 : 268 - bounded) << 23);
        unit = bit_cast_to<float>(static_cast<std::uint32_t>(bounded - 14) << 23);
      }
    }
    if (lane == 0) s.q_unit[row] = unit;
    for (int at = lane * 8; at < kWidth; at += 64) {
      for (int d = 0; d < 8; ++d) {
        const float value = real && at < p.dim ? load_value(p.q, offset + at + d) * factor : 0.0F;
        const Compute high = product_form<Compute>(value);
        s.q_high[place<Compute, kWidth>(row, at + d)] = high;
        if (two_halves) s.q_low[place<Compute, kWidth>(row, at + d)] = product_form<Compute>(value - to_float(high));
      }
    }
  }

  /// A thread's 16 neighbouring elements in 64 of a row, packed in pairs.
  template <class T, int kRow>
  static KVPOOL_DEVICE void load16(const T* rows, int row, int element, std::uint32_t (&words)[8]) {
    if (sizeof(T) == 2) {
      load_packed<8>(rows + place<T, kRow>(row, element), words);
      load_packed<8>(rows + place<T, kRow>(row, element + 8), words + 4);
    } else {
      load_packed<16>(rows + place<T, kRow>(row, element), words);
    }
  }

  KVPOOL_DEVICE void multiply(float (&c)[4], const Compute* q, int element, const std::uint32_t (&key)[8]) const {
    std::uint32_t upper[8];
    std::uint32_t lower[8];
    load16<Compute, kWidth>(q, g, element, upper);
    load16<Compute, kWidth>(q, g + 8, element, lower);
    KVPOOL_UNROLL
    for (int i = 0; i < 8; i += 2) {
      const std::uint32_t a[4] = {upper[i], lower[i], upper[i + 1], lower[i + 1]};
      const std::uint32_t b[2] = {key[i], key[i + 1]};
      mma_m16n8k16<Compute>(c, a, b);
    }
  }

  /// Logits of this warp's 8 keys.
  KVPOOL_DEVICE void dot_products(const Cache* k, int tile) const {
    float c[4] = {0, 0, 0, 0};
    KVPOOL_UNROLL_2
    for (int part = 0; part < kBlocks; ++part) {
      const int element = part * 64 + t * 16;
      std::uint32_t key[8];
      load16<Cache, kWidth>(k, warp * 8 + g, element, key);
      multiply(c, s.q_high, element, key);
      if (two_halves) multiply(c, s.q_low, element, key);
    }
    KVPOOL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8;
      const int at = warp * 8 + t * 2 + i % 2;
      s.scores[row * kScoreRow + at] = logit(row, start + tile * kTile + at, c[i], keys[i / 2]);
    }
  }

  KVPOOL_DEVICE float logit(int row, int key, float dot, const KeyRange& seen) const {
    if (key < item.begin || key >= item.end || key < seen.lo || key >= seen.hi) return minus_infinity();
    const float scale = p.scale * p.k_scale[head] * s.q_unit[row];
    return log2_logit(p, dot, scale, query_head_of_row(p, block, head, row), key, seen);
  }

  /// Place of number i (0..3) of a thread's share of 16 keys: those of an A fragment.
  KVPOOL_DEVICE int key_of(int i) const { return t * 2 + i % 2 + i / 2 * 8; }

  /// Weights of the thread's rows, maxima and sums; the factors for what was summed before go to the accumulators.
  KVPOOL_DEVICE void softmax(float (&weight)[2][kTile / 4], float (&max)[2], float (&sum)[2],
                             float (&acc)[kColumns][4]) const {
    KVPOOL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float* scores = s.scores + (g + half * 8) * kScoreRow;
      float top = max[half];
      KVPOOL_UNROLL
      for (int i = 0; i < kTile / 4; ++i) {
        weight[half][i] = scores[i / 4 * 16 + key_of(i % 4)];
        top = weight[half][i] > top ? weight[half][i] : top;
      }
      KVPOOL_UNROLL
      for (int mask = 2; mask > 0; mask /= 2) {
        const float other = shuffle_xor(top, mask);
        top = other > top ? other : top;
      }
      const float base = top == minus_infinity() ? 0.0F : top;
      float total = 0;
      KVPOOL_UNROLL
      for (int i = 0; i < kTile / 4; ++i) {
        weight[half][i] = fast_exp2(weight[half][i] - base);
        total += weight[half][i];
      }
      KVPOOL_UNROLL
      for (int mask = 2; mask > 0; mask /= 2) total += shuffle_xor(total, mask);
      const float factor = max[half] == minus_infinity() ? 0.0F : fast_exp2(max[half] - base);
      KVPOOL_UNROLL
      for (std::size_t n = 0; n < kColumns; ++n) {
        acc[n][half * 2] *= factor;
        acc[n][half * 2 + 1] *= factor;
      }
      sum[half] = sum[half] * factor + total;
      max[half] = top;
    }
  }

  /// Column of element (piece, j) of column group n of this warp.
  KVPOOL_DEVICE int column(int piece, int n, int j) const { return warp * kShare + piece * 64 + n * kPer + j; }

  KVPOOL_DEVICE void add_values(float (&acc)[kColumns][4], const Cache* v, const float (&weight)[2][kTile / 4]) const {
    KVPOOL_UNROLL
    for (int step = 0; step < kTile / 16; ++step) {
      std::uint32_t a[4];
      KVPOOL_UNROLL
      for (int i = 0; i < 4; ++i)
        a[i] = pack_pair<Compute>(weight[i % 2][step * 4 + i / 2 * 2], weight[i % 2][step * 4 + i / 2 * 2 + 1]);
      KVPOOL_UNROLL
      for (int piece = 0; piece < kPieces; ++piece) {
        std::uint32_t words[4][kPairs];
        KVPOOL_UNROLL
        for (int i = 0; i < 4; ++i)
          load_packed<kPer>(v + place<Cache, kRowV>(step * 16 + key_of(i), column(piece, g, 0)), words[i]);
        KVPOOL_UNROLL
        for (int j = 0; j < kPer; ++j) {
          const std::uint32_t b[2] = {pair_of_halves(words[0][j / 2], words[1][j / 2], j % 2),
                                      pair_of_halves(words[2][j / 2], words[3][j / 2], j % 2)};
          mma_m16n8k16<Compute>(acc[piece * kPer + j], a, b);
        }
      }
    }
  }

  /// Whether some row of the block misses a needed key of the tile.
  KVPOOL_DEVICE bool ragged(int tile) const {
    const int tile_first = start + tile * kTile;
    const int from = tile_first > first ? tile_first : first;
    const int to = tile_first + kTile < last ? tile_first + kTile : last;
    return keys_of_row(p, block, block.rows - 1).lo > from || keys_of_row(p, block, 0).hi < to;
  }

  KVPOOL_DEVICE void add_values_singly(float (&acc)[kColumns][4], const Cache* v, const float (&max)[2],
                                       int tile) const {
    for (int i = 0; i < kTile; ++i) {
      const int key = start + tile * kTile + i;
      if (!needed(key)) continue;
      KVPOOL_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (key < keys[half].lo || key >= keys[half].hi) continue;
        const float weight =
            fast_exp2(s.scores[(g + half * 8) * kScoreRow + i] - (max[half] == minus_infinity() ? 0.0F : max[half]));
        KVPOOL_UNROLL
        for (int n = 0; n < static_cast<int>(kColumns); ++n) {
          KVPOOL_UNROLL
          for (int side = 0; side < 2; ++side) {
            const int at = column(n / kPer, t * 2 + side, n % kPer);
            acc[n][half * 2 + side] += weight * to_float(v[place<Cache, kRowV>(i, at)]);
          }
        }
      }
    }
  }

  KVPOOL_DEVICE void write_partials(const float (&acc)[kColumns][4], const float (&max)[2],
                                    const float (&sum)[2]) const {
    const std::int64_t base = first_partial(item.slot, p.num_kv_heads, head, kMmaRows);
    KVPOOL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = g + half * 8;
      if (row >= block.rows) continue;
      const bool empty = max[half] == minus_infinity() && sum[half] == 0;
      const float inverse = empty ? 0.0F : fast_reciprocal(sum[half]);
      float* out = p.partials.out + (base + row) * p.dim_v;
      KVPOOL_UNROLL
      for (int n = 0; n < static_cast<int>(kColumns); ++n) {
        KVPOOL_UNROLL
        for (int side = 0; side < 2; ++side) {
          const int at = column(n / kPer, t * 2 + side, n % kPer);
          if (at < p.dim_v) out[at] = empty ? 0.0F : acc[n][half * 2 + side] * inverse;
        }
      }
      if (warp == 0 && t == 0)
        p.partials.lse[base + row] = empty ? minus_infinity() : (max[half] + log2f(sum[half])) * kLn2;
    }
  }

  KVPOOL_DEVICE void run() {
    const int tiles = num_tiles();
    float acc[kColumns][4];
    KVPOOL_UNROLL
    for (std::size_t n = 0; n < kColumns; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
    float max[2] = {minus_infinity(), minus_infinity()};
    float sum[2] = {0, 0};
    for (int tile = 0; tile < kDepth; ++tile) load_pages(tile);
    load_queries();
    block_barrier();
    for (int tile = 0; tile < kDepth - 1; ++tile) fetch(tile, tiles);
    for (int tile = 0; tile < tiles; ++tile) {
      if (KVPOOL_PLANTED_BUG == 9) {
        copy_async_wait<kDepth - 1>();
      } else {
        copy_async_wait<kDepth - 2>();  // this tile has landed
      }
      if (KVPOOL_PLANTED_BUG == 11) fetch(tile + kDepth - 1, tiles);
      if (KVPOOL_PLANTED_BUG != 10)
        block_barrier();  // everybody's part of it, and nobody reads what is overwritten next
      if (KVPOOL_PLANTED_BUG != 11) fetch(tile + kDepth - 1, tiles);
      load_pages(tile + kDepth);
      const int stage = tile % kDepth * kTile;
      dot_products(s.k + stage * kWidth, tile);
      if (KVPOOL_PLANTED_BUG == 12 && thread_index() == 0) s.scores[kMmaRows * kScoreRow] = 1;  // past the array
      block_barrier();
      float weight[2][kTile / 4];
      softmax(weight, max, sum, acc);
      if (ragged(tile)) {
        add_values_singly(acc, s.v + stage * kRowV, max, tile);
      } else {
        add_values(acc, s.v + stage * kRowV, weight);
      }
    }
    copy_async_wait<0>();
    write_partials(acc, max, sum);
  }
};

template <class Cache, int kBlocks, int kBlocksV, bool kLatent>
KVPOOL_DEVICE void attend_mma_block(const AttendParams& params) {
  if (params.items[block_x()].block < 0) return;  // the unused end of a list of fixed length
  MmaBlock<Cache, kBlocks, kBlocksV, kLatent>(params).run();
}

}  // namespace kvpool::kernels::gpu
