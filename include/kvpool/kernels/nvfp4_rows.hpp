// NVFP4 rows: a storage format of 4.5 bits a number, for pages that wait outside the pool. Attention does not read it;
// rows are unpacked first.
//
//     bytes 0 .. dim/2 - 1              two numbers E2M1 a byte, the one of the even index in the low half
//     bytes dim/2 .. dim/2 + dim/16 - 1 one scale E4M3 for every 16 of them: real = stored * scale * tensor_scale
//
// E2M1 has the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6, no infinity and no NaN. Host memory, one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::kernels {

inline constexpr std::int64_t kNvfp4Group = 16;

/// Packed rows; row i starts at data + i * row_stride, in bytes.
struct Nvfp4Rows {
  std::byte* data = nullptr;
  std::int64_t dim = 0;         ///< numbers of a row, a multiple of 16
  std::int64_t row_stride = 0;  ///< at least nvfp4_row_bytes(dim)
  float tensor_scale = 1;       ///< finite and above 0
};

/// Bytes of a row of `dim` numbers. Precondition: dim is a multiple of 16. O(1).
[[nodiscard]] constexpr std::int64_t nvfp4_row_bytes(std::int64_t dim) noexcept { return dim / 2 + dim / kNvfp4Group; }

/// Packs `count` rows (head strides are not used). The scale of 16 numbers is the largest finite magnitude among them /
/// 6 / tensor_scale, to the nearest E4M3 number but not to 0 unless all are 0; numbers go to the nearest, ties to the
/// even code, and saturate. A NaN makes the scale of its group NaN, and so all 16. Errors, before any byte changes:
/// invalid_argument (memory, dim, stride, tensor_scale), unsupported (row type: float32, float16, bfloat16 it may be).
/// O(count * dim).
[[nodiscard]] Status pack_nvfp4(const QueryRows& rows, std::int64_t count, const Nvfp4Rows& packed);

/// Unpacks `count` rows to dense rows [count][dim] of `type` (float32, float16 or bfloat16), rounded once. Errors as
/// above.
[[nodiscard]] Status unpack_nvfp4(const Nvfp4Rows& packed, std::int64_t count, void* out, DType type);

}  // namespace kvpool::kernels
