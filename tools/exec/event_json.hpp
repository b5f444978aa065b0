// KV events as op scripts write them.
#pragma once

#include "kvpool/pool/kv_event.hpp"
#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

/// `type` first; required members always, even as null; optional ones only when they have a value.
[[nodiscard]] Json to_json(const KVEvent& event);

}  // namespace kvpool::tools
