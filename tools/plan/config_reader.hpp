// Reads a Hugging Face config.json.
#pragma once

#include <string>
#include <string_view>

#include "tools/plan/model_facts.hpp"

namespace kvpool::tools {

/// `path` may be plain or gzip, at most 16 MiB. A model inside a larger one (text_config, llm_config,
/// language_config, thinker_config) is found; the outer object fills in what the inner one leaves out.
/// Throws InputError naming field and value: bad JSON, a key given twice, a wrong type or range, two fields that
/// contradict each other, a misspelt field, a missing number of layers.
[[nodiscard]] ModelFacts read_model_config(const std::string& path);

/// The same for text in memory; `name` stands for the file in messages.
[[nodiscard]] ModelFacts parse_model_config(const std::string& name, std::string_view text);

}  // namespace kvpool::tools
