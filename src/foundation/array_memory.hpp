// Memory for the long arrays of a pool, on huge pages where that pays.
#pragma once

#include <cstddef>

namespace kvpool {

/// Arrays from this size on are asked for in huge pages; smaller ones would waste most of a page.
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

/// `bytes` of memory aligned to `alignment`, a power of two. Large arrays start on a huge page and the system is
/// advised to use huge pages for them (`huge` true) or left to its own choice; where it has none, ordinary pages
/// serve as well. Throws std::bad_alloc.
[[nodiscard]] void* allocate_array(std::size_t bytes, std::size_t alignment, bool huge);

/// Gives back what allocate_array(bytes, alignment, ...) answered.
void free_array(void* memory, std::size_t bytes, std::size_t alignment) noexcept;

/// Bytes of all arrays that exist now, as asked for.
[[nodiscard]] std::size_t array_bytes_in_use() noexcept;

}  // namespace kvpool
