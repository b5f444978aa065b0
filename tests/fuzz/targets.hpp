// One function per reader of foreign input. Each runs it on arbitrary bytes and aborts when a promise is broken:
// bad input is refused with a message, good input keeps every invariant. Used by libFuzzer and by the replay test.
#pragma once

#include <cstdint>
#include <span>

namespace kvpool::fuzz {

/// Op scripts, run to their end.
void fuzz_script(std::span<const std::uint8_t> bytes);

/// Request traces and operation logs, plain or gzip.
void fuzz_trace(std::span<const std::uint8_t> bytes);

/// Model configurations, planned for one and for eight GPUs.
void fuzz_model_config(std::span<const std::uint8_t> bytes);

}  // namespace kvpool::fuzz
