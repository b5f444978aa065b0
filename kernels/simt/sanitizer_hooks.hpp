// What the sanitizers must be told about fibres; every function is empty in a plain build.
#pragma once

#include <cstddef>

#if defined(KVPOOL_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(KVPOOL_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace kvpool::kernels::simt {

#if defined(KVPOOL_SIMT_ASAN)
inline constexpr std::size_t kRedzone = 64;
inline void poison(const void* p, std::size_t n) { __asan_poison_memory_region(p, n); }
inline void unpoison(const void* p, std::size_t n) { __asan_unpoison_memory_region(p, n); }
inline void start_switch(void** fake_stack, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
}
inline void finish_switch(void* fake_stack, const void** bottom, std::size_t* size) {
  __sanitizer_finish_switch_fiber(fake_stack, bottom, size);
}
#else
inline constexpr std::size_t kRedzone = 0;
inline void poison(const void* /*p*/, std::size_t /*n*/) {}
inline void unpoison(const void* /*p*/, std::size_t /*n*/) {}
inline void start_switch(void** /*fake_stack*/, const void* /*bottom*/, std::size_t /*size*/) {}
inline void finish_switch(void* /*fake_stack*/, const void** /*bottom*/, std::size_t* /*size*/) {}
#endif

#if defined(KVPOOL_SIMT_TSAN)
inline void* current_thread_identity() { return __tsan_get_current_fiber(); }
inline void* new_thread_identity() { return __tsan_create_fiber(0); }
inline void take_identity(void* identity) { __tsan_switch_to_fiber(identity, __tsan_switch_to_fiber_no_sync); }
inline void acquire(void* token) { __tsan_acquire(token); }
inline void release(void* token) { __tsan_release(token); }
#else
inline void* current_thread_identity() { return nullptr; }
inline void* new_thread_identity() { return nullptr; }
inline void take_identity(void* /*identity*/) {}
inline void acquire(void* /*token*/) {}
inline void release(void* /*token*/) {}
#endif

}  // namespace kvpool::kernels::simt
