// Which states can overlapping calls end in? The search of Wing and Gong, with Lowe's memory of what was tried.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "stress/history.hpp"

namespace kvpool::stress {

/// `Model` is an ordered state of the sequential specification; `bool apply(Model&, const Call&)`, found beside it, is
/// false when the call cannot happen there with the answer it had. At most 64 calls.
template <class Model, class Call>
class OrderSearch {
 public:
  using States = std::set<Model>;

  explicit OrderSearch(const std::vector<Call>& calls) : calls_(calls) {}

  /// All states that some legal order of all calls can end in; empty: there is none.
  States run(const States& starts) {
    for (const Model& start : starts) visit(0, start);
    return std::move(ends_);
  }

 private:
  void visit(std::uint64_t done, const Model& state) {
    if (!seen_.insert({done, state}).second) return;
    const std::uint64_t all = calls_.size() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << calls_.size()) - 1;
    if (done == all) {
      ends_.insert(state);
      return;
    }
    Moment first_return = ~Moment{0};  // a call may come next only if no other open call has returned before it began
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((done >> i & 1U) == 0) first_return = std::min(first_return, calls_[i].returned);
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((done >> i & 1U) != 0 || calls_[i].invoked > first_return) continue;
      Model next = state;
      if (apply(next, calls_[i])) visit(done | (std::uint64_t{1} << i), next);
    }
  }

  const std::vector<Call>& calls_;
  std::set<std::pair<std::uint64_t, Model>> seen_;
  States ends_;
};

}  // namespace kvpool::stress
