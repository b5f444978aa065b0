// How large the greatest error of a row may be: a multiple of the error that the same mathematics makes in bf16, and
// two roundings of the result's type. The measure has no scale of its own: large values may err more than small ones.
#pragma once

#include <vector>

#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {

/// Attention of every row of the case with each intermediate result rounded to bf16 (queries, keys and values as well;
/// sums are in fp32), as fp32 numbers [token][query head][dim_v].
[[nodiscard]] std::vector<float> attention_in_bf16(const AttentionCase& c);

/// Fails where an element of a row of `got` is further from the reference than `factor` times the largest error of
/// `low` in that row and two roundings.
void expect_within_bf16_error(const AttentionCase& c, const Output& got, const Output& reference,
                              const std::vector<float>& low, double factor);

}  // namespace kvpool::kernels::test
