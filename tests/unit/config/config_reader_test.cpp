// Reading config.json: names of fields, nesting, and what is refused.
#include "tools/plan/config_reader.hpp"

#include <gtest/gtest.h>

#include <string>

#include "plan_fixture.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool {
namespace {

using tools::parse_model_config;

const std::string kSmall =
    R"("model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"torch_dtype":"bfloat16")";

tools::ModelFacts read(const std::string& members) { return parse_model_config("config.json", "{" + members + "}"); }

std::string refusal(const std::string& members) {
  try {
    const auto facts = read(members);
    const auto layers = tools::model_layers(facts, {});
    return layers ? std::string{} : layers.error().message;
  } catch (const tools::InputError& error) {
    return error.what();
  }
}

void expect_named(const std::string& message, const std::string& field, const std::string& value) {
  EXPECT_NE(message.find(field), std::string::npos) << message;
  EXPECT_NE(message.find(value), std::string::npos) << message;
}

TEST(ConfigReader, UnknownArchitecturesWithUsualNamesWarn) {
  const auto layers = test::layers_of(read(R"("model_type":"brandnew","d_model":64,"n_layer":2,"n_head":4)"));
  EXPECT_EQ(layers.stages[0].size(), 2U);
  ASSERT_EQ(layers.warnings.size(), 2U);
  EXPECT_NE(layers.warnings[0].find("'brandnew' is not known"), std::string::npos);
  EXPECT_NE(layers.warnings[1].find("torch_dtype is missing"), std::string::npos);
  EXPECT_TRUE(test::layers_of(read(kSmall)).warnings.empty());
}

TEST(ConfigReader, MissingKvHeadsMeanAllHeads) {
  const auto layers = test::layers_of(read(kSmall));
  EXPECT_EQ(std::get<FullAttentionSpec>(layers.stages[0][0].spec).shape.num_kv_heads, 4);
  EXPECT_EQ(read(kSmall + R"(,"multi_query":true)").num_kv_heads, 1);
}

TEST(ConfigReader, InnerModelsOverrideTheOuterOne) {
  const auto facts = read(R"("model_type":"outer","hidden_size":9,"torch_dtype":"float16","text_config":{)"
                          R"("model_type":"llama","hidden_size":64,"num_hidden_layers":2,)"
                          R"("num_attention_heads":4,"torch_dtype":null})");
  EXPECT_EQ(facts.hidden_size, 64);
  EXPECT_EQ(facts.dtype, DType::float16);
  EXPECT_EQ(facts.model_type, "llama");
}

TEST(ConfigReader, OuterAndInnerMustNotContradict) {
  expect_named(refusal(R"("num_hidden_layers":3,"text_config":{)" + kSmall + "}"), "num_hidden_layers", "3");
}

TEST(ConfigReader, TwoNamesOfOneFactMustNotContradict) {
  expect_named(refusal(kSmall + R"(,"d_model":128)"), "d_model", "128");
  expect_named(refusal(kSmall + R"(,"dtype":"float16")"), "torch_dtype", "bfloat16");
  EXPECT_EQ(refusal(kSmall + R"(,"d_model":64)"), "");
}

TEST(ConfigReader, WrongTypesAndRangesAreNamed) {
  const std::string heads = R"("hidden_size":64,"num_hidden_layers":2,"num_attention_heads":)";
  expect_named(refusal(heads + R"("4")"), "num_attention_heads", "\"4\"");
  expect_named(refusal(heads + "-4"), "num_attention_heads", "-4");
  expect_named(refusal(heads + "0"), "num_attention_heads", "0");
  expect_named(refusal(heads + "4.5"), "num_attention_heads", "4.5");
  expect_named(refusal(heads + "1e40"), "num_attention_heads", "1e+40");
  expect_named(refusal(heads + "18446744073709551615"), "num_attention_heads", "18446744073709551615");
  expect_named(refusal(R"("num_hidden_layers":5000)"), "num_hidden_layers", "5000");
  expect_named(refusal(R"("hidden_size":64)"), "num_hidden_layers", "missing");
  expect_named(refusal(R"("num_hidden_layers":2,"model_type":5)"), "model_type", "5");
  expect_named(refusal(R"("num_hidden_layers":2,"use_sliding_window":1)"), "use_sliding_window", "1");
  expect_named(refusal(R"("num_hidden_layers":2,"layer_types":"full")"), "layer_types", "full");
  expect_named(refusal(R"("num_hidden_layers":2,"layer_types":[1])"), "layer_types", "1");
  expect_named(refusal(R"("num_hidden_layers":2,"no_rope_layers":[-1])"), "no_rope_layers", "-1");
  expect_named(refusal(R"("num_hidden_layers":2,"text_config":7)"), "text_config", "7");
  expect_named(refusal(kSmall + R"(,"dtype":null,"mamba_ssm_dtype":"int3")"), "mamba_ssm_dtype", "int3");
}

TEST(ConfigReader, ContradictionsBetweenFieldsAreNamed) {
  expect_named(refusal(kSmall + R"(,"num_key_value_heads":3)"), "num_key_value_heads", "3");
  expect_named(refusal(R"("num_hidden_layers":2,"hidden_size":65,"num_attention_heads":4)"), "hidden_size", "65");
  expect_named(refusal(kSmall + R"(,"layer_types":["full_attention"])"), "layer_types", "1");
  expect_named(refusal(kSmall + R"(,"layer_types":["full_attention","odd_attention"])"), "layer_types",
               "odd_attention");
  expect_named(refusal(kSmall + R"(,"layer_types":["full_attention","sliding_attention"])"), "sliding_window",
               "nothing");
  expect_named(refusal(kSmall + R"(,"layer_types":["full_attention","chunked_attention"])"), "attention_chunk_size",
               "nothing");
  expect_named(refusal(kSmall + R"(,"layer_types":["full_attention","sliding_attention"],"sliding_window":8,)" +
                       R"("use_sliding_window":false)"),
               "use_sliding_window", "false");
  expect_named(refusal(kSmall + R"(,"hybrid_override_pattern":"MM*")"), "hybrid_override_pattern", "MM*");
  expect_named(refusal(kSmall + R"(,"hybrid_override_pattern":"*X")"), "hybrid_override_pattern", "X");
  expect_named(refusal(kSmall + R"(,"attn_layer_period":2,"attn_layer_offset":2)"), "attn_layer_offset", "2");
  expect_named(refusal(kSmall + R"(,"cross_attention_layers":[2])"), "cross_attention_layers", "2");
  expect_named(refusal(kSmall + R"(,"cross_attention_layers":[1])"), "vision_config.image_size", "nothing");
  expect_named(refusal(kSmall + R"(,"attention_chunk_size":64,"no_rope_layers":[1])"), "no_rope_layers", "1");
  expect_named(refusal(kSmall + R"(,"num_kv_shared_layers":2)"), "num_kv_shared_layers", "2");
  expect_named(refusal(kSmall + R"(,"kv_lora_rank":512)"), "qk_rope_head_dim", "nothing");
  expect_named(refusal(kSmall + R"(,"kv_lora_rank":512,"qk_rope_head_dim":64,"sliding_window":8)"), "kv_lora_rank",
               "512");
  expect_named(refusal(kSmall + R"(,"full_attention_interval":2)"), "layer_types", "llama");
  expect_named(refusal(kSmall + R"(,"num_experts":4,"num_experts_per_tok":8)"), "num_experts_per_tok", "8");
  expect_named(refusal(kSmall + R"(,"index_topk":2048)"), "index_topk", "2048");
  expect_named(refusal(kSmall + R"(,"index_head_dim":64)"), "index_head_dim", "64");
  expect_named(refusal(kSmall + R"(,"kv_lora_rank":32,"qk_rope_head_dim":8,"index_topk":64)"), "index_topk", "64");
}

// A file that calls a fact by another name is answered with that name.
TEST(ConfigReader, RefusalsUseTheNamesOfTheFile) {
  expect_named(refusal(R"("num_layers":2,"d_model":65,"n_head":4)"), "d_model", "65");
  expect_named(refusal(R"("num_layers":2,"n_embd":65,"decoder_attention_heads":4)"), "n_embd", "65");
  expect_named(refusal(kSmall + R"(,"layers_block_type":["attention"])"), "layers_block_type", "1");
  const std::string recurrent = R"(,"layer_types":["mamba","attention"],"mamba_n_heads":2,"state_size":16)";
  expect_named(refusal(kSmall + recurrent + R"(,"conv_kernel":1)"), "conv_kernel", "1");
  expect_named(refusal(kSmall + recurrent + R"(,"mamba_d_conv":1)"), "mamba_d_conv", "1");
  expect_named(refusal(kSmall + R"(,"full_attention_interval":2,"linear_num_key_heads":1,"linear_num_value_heads":2,)"
                                R"("linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":1)"),
               "linear_conv_kernel_dim", "1");
}

TEST(ConfigReader, WeightsOfQuantisedCheckpoints) {
  const auto quantised = [](const std::string& members) {
    return kSmall + R"(,"quantization_config":{)" + members + "}";
  };
  EXPECT_EQ(read(quantised(R"("quant_method":"gptq","bits":4)")).quant.bits, 4.0);
  EXPECT_EQ(read(quantised(R"("quant_method":"awq","w_bit":3)")).quant.bits, 3.0);
  EXPECT_EQ(read(quantised(R"("quant_method":"bitsandbytes","load_in_4bit":true)")).quant.bits, 4.0);
  EXPECT_EQ(read(quantised(R"("quant_method":"bitsandbytes","load_in_8bit":true)")).quant.bits, 8.0);
  EXPECT_EQ(read(quantised(R"("quant_method":"modelopt","quant_algo":"FP8")")).quant.bits, 8.0);
  EXPECT_EQ(read(quantised(R"("quant_method":"modelopt","kv_cache_quant_algo":"FP8")")).quant.kv,
            tools::KvQuantisation::per_tensor);
  EXPECT_EQ(read(quantised(R"("config_groups":{"a":{"weights":{"num_bits":8}}})")).quant.bits, 8.0);
  expect_named(refusal(quantised(R"("kv_cache_quant_algo":"INT3")")), "kv_cache_quant_algo", "INT3");
  expect_named(refusal(quantised(R"("bits":65)")), "quantization_config.bits", "65");
  expect_named(refusal(quantised(R"("config_groups":{"a":{"weights":{"num_bits":-8}}})")), "config_groups.a.weights",
               "-8");
  const auto layers = test::layers_of(read(quantised(R"("quant_method":"brandnew")")));
  ASSERT_EQ(layers.warnings.size(), 1U);
  EXPECT_NE(layers.warnings[0].find("'brandnew' does not say how many bits"), std::string::npos) << layers.warnings[0];
}

TEST(ConfigReader, MisspeltFieldsAreRefusedWithWhatIsMeant) {
  const std::string message = refusal(kSmall + R"(,"num_key_value_head":2)");
  expect_named(message, "num_key_value_head", "2");
  EXPECT_NE(message.find("num_key_value_heads is meant perhaps"), std::string::npos) << message;
  expect_named(refusal(kSmall + R"(,"sliding_windows":2)"), "sliding_windows", "2");
  EXPECT_EQ(refusal(kSmall + R"(,"rope_theta":1e6,"num_labels":2,"qk_head_dim":192,"hidden_act":"silu")"), "");
}

TEST(ConfigReader, KvSchemesOfCheckpoints) {
  const auto scheme = [](const std::string& members) {
    return kSmall + R"(,"quantization_config":{"quant_method":"compressed-tensors","kv_cache_scheme":{)" + members +
           "}}";
  };
  EXPECT_EQ(read(scheme(R"("num_bits":8,"type":"float","strategy":"tensor")")).quant.kv,
            tools::KvQuantisation::per_tensor);
  EXPECT_EQ(read(scheme(R"("num_bits":8,"strategy":"token")")).quant.kv, tools::KvQuantisation::per_token_head);
  expect_named(refusal(scheme(R"("num_bits":4)")), "kv_cache_scheme.num_bits", "4");
  expect_named(refusal(scheme(R"("type":"int")")), "kv_cache_scheme.type", "int");
  expect_named(refusal(scheme(R"("strategy":"odd")")), "kv_cache_scheme.strategy", "odd");
}

TEST(ConfigReader, LengthFollowsTheStretchedPositions) {
  const std::string at = kSmall + R"(,"max_position_embeddings":4096,"rope_scaling":)";
  EXPECT_EQ(read(at + "null").max_position, 4096);
  EXPECT_EQ(read(at + R"({"type":"linear","factor":2.0})").max_position, 8192);
  EXPECT_EQ(read(at + R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":2048})").max_position,
            8192);
  EXPECT_EQ(read(at + R"({"rope_type":"llama3","factor":8.0})").max_position, 4096);
  const auto odd = test::layers_of(read(at + R"({"rope_type":"odd","factor":8.0})"));
  ASSERT_EQ(odd.warnings.size(), 1U);
  EXPECT_NE(odd.warnings[0].find("rope_type 'odd' is not known"), std::string::npos);
  expect_named(refusal(at + R"({"type":"linear","factor":0.5})"), "rope_scaling.factor", "0.5");
}

TEST(ConfigReader, BrokenJsonIsRefusedWithItsPosition) {
  const auto message = [](const std::string& text) {
    try {
      static_cast<void>(parse_model_config("config.json", text));
      return std::string{};
    } catch (const tools::InputError& error) {
      return std::string(error.what());
    }
  };
  for (const char* text : {"", "{", "[]", "17", "{\"a\":}", "nonsense"}) EXPECT_NE(message(text), "") << text;
  expect_named(message(R"({"num_hidden_layers":2,"num_hidden_layers":3})"), "num_hidden_layers", "given twice");
  const std::string deep = R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}";
  expect_named(message(deep), "config.json", "nested deeper");
}

TEST(ConfigReader, FilesThatCannotBeReadAreRefused) {
  EXPECT_THROW(static_cast<void>(tools::read_model_config("/nonexistent/config.json")), tools::InputError);
}

}  // namespace
}  // namespace kvpool
