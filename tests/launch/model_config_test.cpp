#include "tools/launch/model/model_config.hpp"

#include <gtest/gtest.h>

namespace kvpool::launch {
namespace {

TEST(ModelConfig, MissingFieldsKeepTheDefaults) {
  const auto config = parse_model_config("{}", "m.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->hidden_size, 512);
  EXPECT_EQ(config->num_query_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_size, 64);
  EXPECT_EQ(config->kv_dtype, DType::float32);
  EXPECT_EQ(config->sliding_windows, (std::vector<std::int64_t>{0, 0}));
}

TEST(ModelConfig, ReadsAllFields) {
  const auto config = parse_model_config(
      R"({"num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
          "head_dim": 32, "torch_dtype": "bfloat16", "sliding_window": 64, "seed": 9,
          "layer_types": ["full_attention", "sliding_attention", "full_attention"]})",
      "m.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->head_size, 32);
  EXPECT_EQ(config->kv_dtype, DType::bfloat16);
  EXPECT_EQ(config->seed, 9U);
  EXPECT_EQ(config->sliding_windows, (std::vector<std::int64_t>{0, 64, 0}));
}

TEST(ModelConfig, NamesFileFieldAndValue) {
  const auto expect_refused = [](const char* text, const char* field) {
    const auto config = parse_model_config(text, "m.json");
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.error().message.find("m.json"), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find(field), std::string::npos) << config.error().message;
  };
  expect_refused("[1]", "JSON object");
  expect_refused("{", "JSON object");
  expect_refused(R"({"num_hidden_layers": 0})", "num_hidden_layers is 0");
  expect_refused(R"({"hidden_size": -5})", "hidden_size is -5");
  expect_refused(R"({"hidden_size": 1e300})", "hidden_size");
  expect_refused(R"({"hidden_size": 18446744073709551615})", "hidden_size");
  expect_refused(R"({"num_attention_heads": "8"})", "num_attention_heads");
  expect_refused(R"({"num_attention_heads": 8, "num_key_value_heads": 3})", "num_key_value_heads 3");
  expect_refused(R"({"torch_dtype": "int4"})", "torch_dtype");
  expect_refused(R"({"layer_types": ["full_attention"]})", "layer_types");
  expect_refused(R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types");
  expect_refused(R"({"num_attention_heads": 64, "head_dim": 65536})", "head_dim");
  EXPECT_FALSE(load_model_config("/nonexistent/m.json").ok());
}

}  // namespace
}  // namespace kvpool::launch
