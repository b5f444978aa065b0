#include "tools/launch/verify/verifier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/launch/verify/dense_reference.hpp"
#include "tools/launch/verify/solo_run.hpp"

namespace kvpool::launch {
namespace {

/// fp32: rounding of some hundred additions. bf16: K and V that round to the other neighbour in double.
double limit_of(DType type) { return type == DType::float32 ? 1e-5 : 4e-3; }

std::vector<TokenId> all_tokens(const scheduler::TokenSource& source, const scheduler::WorkItem& item) {
  std::vector<TokenId> tokens = source.prompt(item.index);
  // The last output is never fed back.
  for (std::int64_t i = 0; i + 1 < item.output_tokens; ++i) tokens.push_back(source.output(item.index, i));
  return tokens;
}

class Comparison {
 public:
  Comparison(const ModelConfig& model, VerifyReport& report) : model_(model), report_(report) {}

  void against_double(std::int64_t request, const RequestOutputs& outputs, const DenseResult& expected) {
    const std::int64_t heads = model_.num_layers * model_.num_query_heads;
    for (std::int64_t place = 0; place < heads; ++place) {
      std::vector<float> a;
      std::vector<double> b;
      for (std::int64_t row = 0; row < outputs.rows; ++row) {
        const auto begin = (row * heads + place) * model_.head_size;
        a.insert(a.end(), outputs.heads.begin() + begin, outputs.heads.begin() + begin + model_.head_size);
        b.insert(b.end(), expected.heads.begin() + begin, expected.heads.begin() + begin + model_.head_size);
      }
      note(relative_l2(a, b), [&] {
        return fmt::format("request {}, layer {}, head {}", request, place / model_.num_query_heads,
                           place % model_.num_query_heads);
      });
    }
    note(relative_l2(outputs.hidden, expected.hidden),
         [&] { return fmt::format("request {}, final hidden state", request); });
  }

  void against_one_rank(std::int64_t request, const RequestOutputs& outputs, const GatheredOutputs& expected) {
    const std::int64_t width = model_.num_query_heads * model_.head_size;
    for (std::int64_t row = 0; row < outputs.rows; ++row) {
      for (std::int64_t layer = 0; layer < report_.bitwise_layers; ++layer) {
        const auto begin = static_cast<std::size_t>((row * model_.num_layers + layer) * width);
        const auto bytes = static_cast<std::size_t>(width) * sizeof(float);
        if (std::memcmp(outputs.heads.data() + begin, expected.heads.data() + begin, bytes) == 0) continue;
        if (report_.bitwise_equal) report_.worst = fmt::format("request {}, output {}, layer {}", request, row, layer);
        report_.bitwise_equal = false;
      }
    }
  }

 private:
  template <class Where>
  void note(double error, Where where) {
    // A NaN is the worst of all and stays.
    if (error <= report_.max_rel_l2 || std::isnan(report_.max_rel_l2)) return;
    report_.max_rel_l2 = error;
    if (report_.bitwise_equal) report_.worst = where();
  }

  const ModelConfig& model_;
  VerifyReport& report_;
};

}  // namespace

std::vector<std::int64_t> choose_samples(const std::vector<scheduler::WorkItem>& items, std::int64_t count) {
  std::vector<std::int64_t> candidates;
  for (const scheduler::WorkItem& item : items) {
    if (item.output_tokens > 0) candidates.push_back(item.index);
  }
  const auto available = static_cast<std::int64_t>(candidates.size());
  if (count >= available) return candidates;
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen.push_back(candidates[static_cast<std::size_t>((2 * i + 1) * available / (2 * count))]);
  }
  return chosen;
}

Result<VerifyReport> verify_samples(const ModelConfig& model, const scheduler::TokenSource& source,
                                    const std::vector<scheduler::WorkItem>& items,
                                    const std::map<std::int64_t, RequestOutputs>& samples,
                                    const VerifyOptions& options) {
  VerifyReport report;
  report.limit = limit_of(model.kv_dtype);
  report.bitwise_layers = options.bitwise_layers;
  const DenseReference reference(model);
  const TinyModel whole(model, all_heads(model), best_row_product_tier());
  SoloOptions solo;  // chunks of another size than the scheduler's, blocks in another order
  solo.block_size = options.block_size;
  Comparison comparison(model, report);
  for (const auto& [request, outputs] : samples) {
    if (!outputs.finished) continue;
    if (options.interrupted && options.interrupted()) break;
    const std::vector<TokenId> tokens = all_tokens(source, items[static_cast<std::size_t>(request)]);
    if (outputs.rows != items[static_cast<std::size_t>(request)].output_tokens) {
      return {ErrorCode::internal, fmt::format("request {} finished with {} of {} outputs", request, outputs.rows,
                                               items[static_cast<std::size_t>(request)].output_tokens)};
    }
    const auto rows = static_cast<std::size_t>(outputs.rows);
    const auto alone = run_alone(whole, solo, options.executor, tokens, rows);
    if (!alone.ok()) return alone.error();
    comparison.against_one_rank(request, outputs, *alone);
    comparison.against_double(request, outputs, reference.run(tokens, rows));
    ++report.requests;
    report.rows += outputs.rows;
  }
  return report;
}

}  // namespace kvpool::launch
