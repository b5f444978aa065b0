#include "tools/launch/model/model_config.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

namespace kvpool::launch {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 16;
constexpr std::int64_t kMaxConfigBytes = 1 << 20;

/// Reads integer fields of one JSON object and remembers the first that is wrong.
class Fields {
 public:
  Fields(const Json& object, std::string name) : object_(object), name_(std::move(name)) {}

  void integer(const char* field, std::int64_t low, std::int64_t high, std::int64_t& out) {
    const auto found = object_.find(field);
    if (found == object_.end() || found->is_null() || !status_.ok()) return;
    const bool is_huge = found->is_number_unsigned() &&
                         found->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!found->is_number_integer() || is_huge || found->get<std::int64_t>() < low ||
        found->get<std::int64_t>() > high) {
      fail(field, *found, fmt::format("an integer from {} to {}", low, high));
      return;
    }
    out = found->get<std::int64_t>();
  }

  void fail(std::string_view field, const Json& value, std::string_view expected) {
    if (!status_.ok()) return;
    status_ = Status(ErrorCode::bad_input,
                     fmt::format("{}: {} is {}, expected {}", name_, field, value.dump().substr(0, 80), expected));
  }

  [[nodiscard]] const Json* find(const char* field) const {
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Json& object_;
  std::string name_;
  Status status_;
};

void read_dtype(Fields& fields, ModelConfig& config) {
  const Json* value = fields.find("torch_dtype");
  if (value == nullptr) value = fields.find("dtype");
  if (value == nullptr) return;
  if (*value == "float32") {
    config.kv_dtype = DType::float32;
  } else if (*value == "bfloat16") {
    config.kv_dtype = DType::bfloat16;
  } else {
    fields.fail("torch_dtype", *value, "\"float32\" or \"bfloat16\"");
  }
}

void read_windows(Fields& fields, ModelConfig& config) {
  std::int64_t window = 0;
  fields.integer("sliding_window", 1, std::numeric_limits<std::int32_t>::max(), window);
  if (!fields.status().ok()) return;
  config.sliding_windows.assign(static_cast<std::size_t>(config.num_layers), window);
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<std::int64_t>(types->size()) != config.num_layers) {
    fields.fail("layer_types", *types, fmt::format("a list of {} entries", config.num_layers));
    return;
  }
  for (std::size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    if (type == "full_attention") {
      config.sliding_windows[i] = 0;
    } else if (type != "sliding_attention" || window == 0) {
      fields.fail("layer_types", type, "\"full_attention\", or \"sliding_attention\" with a sliding_window");
    }
  }
}

}  // namespace

Result<ModelConfig> parse_model_config(const std::string& text, const std::string& name) {
  const Json object = Json::parse(text, nullptr, false);
  if (object.is_discarded() || !object.is_object()) {
    return {ErrorCode::bad_input, fmt::format("{}: not a JSON object", name)};
  }
  ModelConfig config;
  Fields fields(object, name);
  fields.integer("num_hidden_layers", 1, kMaxLayers, config.num_layers);
  fields.integer("hidden_size", 1, kMaxWidth, config.hidden_size);
  fields.integer("num_attention_heads", 1, kMaxWidth, config.num_query_heads);
  config.num_kv_heads = fields.find("num_key_value_heads") == nullptr && fields.find("num_attention_heads") != nullptr
                            ? config.num_query_heads
                            : config.num_kv_heads;
  fields.integer("num_key_value_heads", 1, kMaxWidth, config.num_kv_heads);
  if (fields.find("head_dim") == nullptr && fields.find("hidden_size") != nullptr) {
    config.head_size = config.hidden_size / config.num_query_heads;
  }
  fields.integer("head_dim", 1, kMaxWidth, config.head_size);
  std::int64_t seed = static_cast<std::int64_t>(config.seed);
  fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max(), seed);
  config.seed = static_cast<std::uint64_t>(seed);
  read_dtype(fields, config);
  read_windows(fields, config);
  if (!fields.status().ok()) return fields.status().error();
  if (Status status = validate(config); !status.ok()) {
    return {status.error().code, fmt::format("{}: {}", name, status.error().message)};
  }
  return config;
}

Result<ModelConfig> load_model_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {ErrorCode::bad_input, fmt::format("{}: cannot be opened", path)};
  std::string text(static_cast<std::size_t>(kMaxConfigBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (static_cast<std::int64_t>(text.size()) > kMaxConfigBytes) {
    return {ErrorCode::bad_input, fmt::format("{}: longer than {} bytes", path, kMaxConfigBytes)};
  }
  return parse_model_config(text, path);
}

Status validate(const ModelConfig& config) {
  if (config.num_layers < 1 || config.hidden_size < 1 || config.num_query_heads < 1 || config.num_kv_heads < 1) {
    return {ErrorCode::invalid_config,
            fmt::format("{} layers, hidden size {}, {} query heads, {} KV heads: all must be at least 1",
                        config.num_layers, config.hidden_size, config.num_query_heads, config.num_kv_heads)};
  }
  if (config.num_query_heads % config.num_kv_heads != 0) {
    return {ErrorCode::invalid_config, fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}",
                                                   config.num_query_heads, config.num_kv_heads)};
  }
  if (static_cast<std::int64_t>(config.sliding_windows.size()) != config.num_layers) {
    return {ErrorCode::invalid_config,
            fmt::format("{} sliding windows for {} layers", config.sliding_windows.size(), config.num_layers)};
  }
  if (config.head_size < 1 || config.head_size * config.num_query_heads > kMaxWidth) {
    return {ErrorCode::invalid_config, fmt::format("head_dim {} with {} query heads: at most {} elements in all",
                                                   config.head_size, config.num_query_heads, kMaxWidth)};
  }
  return {};
}

std::string layer_name(std::int64_t layer) { return fmt::format("layer.{}", layer); }

}  // namespace kvpool::launch
