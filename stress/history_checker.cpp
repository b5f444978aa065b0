#include "stress/history_checker.hpp"

#include <algorithm>
#include <map>

#include "stress/order_search.hpp"

namespace kvpool::stress {
namespace {

/// One block as the sequential specification sees it.
struct BlockModel {
  std::uint32_t references = 0;
  std::uint32_t key = 0;
  std::uint32_t to_be_taken_back = 0;  ///< 1 + the thread that is going to take the key back
  friend auto operator<=>(const BlockModel&, const BlockModel&) = default;
};

/// Key of an unpublish that found nothing where content may have been dropped before.
constexpr std::uint32_t kNoneOrDropped = ~std::uint32_t{0};

bool apply(BlockModel& state, const BlockAction& call) {
  switch (call.action) {
    case Action::claim:
      if (state.references != 0) return false;
      state = {1, 0, 0};
      return true;
    case Action::pin:
      if (state.key != call.key) return false;
      ++state.references;
      return true;
    case Action::touch: ++state.references; return true;
    case Action::publish:
      if (state.references == 0 || state.key != 0) return false;
      state.key = call.key;
      return true;
    case Action::release:
      if (state.references == 0) return false;
      --state.references;
      return true;
    case Action::unpublish:
      if (call.key == kNoneOrDropped) {
        state.key = state.to_be_taken_back = 0;
        return true;
      }
      if ((state.key != 0) != (call.key != 0)) return false;
      state.key = state.to_be_taken_back = 0;
      return true;
    case Action::move_away:
      if (state.key != call.key) return false;
      state.key = state.to_be_taken_back = 0;
      return true;
    case Action::evict: state.key = state.to_be_taken_back = 0; return true;
    case Action::publish_further:
      if (state.references == 0) return false;
      if (state.key == 0) state.key = call.key;
      return true;
    case Action::publish_in_vain:
      if (state.references == 0) return false;
      if (state.key == 0) {
        state.key = call.key;
        state.to_be_taken_back = call.thread + 1;
      }
      return true;
    case Action::take_back:
      if (state.to_be_taken_back == call.thread + 1) state.key = state.to_be_taken_back = 0;
      return true;
  }
  return false;
}

using SegmentSearch = OrderSearch<BlockModel, BlockAction>;

std::string print(const std::vector<BlockAction>& calls) {
  std::string text;
  for (const BlockAction& call : calls) text += "\n  " + describe(call);
  return text;
}

void check_block(std::vector<BlockAction> calls, HistoryVerdict& verdict) {
  std::sort(calls.begin(), calls.end(),
            [](const BlockAction& a, const BlockAction& b) { return a.invoked < b.invoked; });
  SegmentSearch::States states{BlockModel{}};
  std::vector<BlockAction> segment;
  Moment open_until = 0;
  const auto close = [&] {
    if (segment.empty() || !verdict.allowed) return;
    verdict.longest_segment = std::max<std::uint64_t>(verdict.longest_segment, segment.size());
    if (segment.size() > 64) {
      verdict.allowed = false;
      verdict.reason =
          "more than 64 overlapping calls on block " + std::to_string(segment[0].block) + ": not decidable here";
      return;
    }
    SegmentSearch::States ends = SegmentSearch(segment).run(states);
    std::erase_if(ends, [](const BlockModel& end) { return end.to_be_taken_back != 0; });
    if (ends.empty()) {
      verdict.allowed = false;
      const BlockModel& before = *states.begin();
      verdict.reason = "no order explains these calls; before them block " + std::to_string(segment[0].block) +
                       " had " + std::to_string(before.references) + " references and key " +
                       std::to_string(before.key) + ":" + print(segment);
    }
    states = std::move(ends);
    segment.clear();
  };
  for (const BlockAction& call : calls) {
    if (call.invoked > open_until) close();
    segment.push_back(call);
    open_until = std::max(open_until, call.returned);
  }
  close();
}

/// At every moment an upper bound of the capacity that others may have held.
class CapacityBound {
 public:
  CapacityBound(const History& history, std::uint32_t usable) : usable_(usable) {
    // A block may be held from the invocation of the claim or pin that took it until the return of the release that
    // brought it to no references; each call in progress may hold what it names.
    std::map<std::uint32_t, std::vector<BlockAction>> by_block;
    // A pin of a shared block that is just losing its key holds it until it has seen that the key is gone, beside the
    // unit it may need. Such references are not in the history.
    const bool rewrites = std::any_of(history.actions.begin(), history.actions.end(), [](const BlockAction& call) {
      return (call.action == Action::unpublish && call.key != 0) || call.action == Action::evict ||
             call.action == Action::move_away || call.action == Action::publish_in_vain;
    });
    const std::int64_t in_vain = rewrites ? 1 : 0;
    for (const BlockAction& call : history.actions) {
      by_block[call.block].push_back(call);
      // What a call in progress names counts on its own: a pin reserves the unit it may need, and a block that is
      // pinned between "no reference" and the credit of its release borrows a unit until that release returns.
      if (call.action == Action::pin) add(call.invoked, call.returned, 1 + in_vain);
      if (call.action == Action::touch || call.action == Action::release) add(call.invoked, call.returned, 1);
    }
    for (auto& [block, calls] : by_block) note_block(calls);
    for (const Allocation& allocation : history.allocations)
      add(allocation.invoked, allocation.returned, allocation.count);
    for (const Miss& miss : history.misses) {
      if (!miss.pins_nothing) add(miss.invoked, miss.returned, 1 + in_vain);
    }
    for (const Withheld& fenced : history.withheld) add(fenced.from, fenced.until, fenced.count);
    std::int64_t sum = 0;
    for (auto& [moment, delta] : changes_) {
      sum += delta;
      delta = sum;
    }
  }

  /// Largest bound within [from, to], the call's own share included.
  [[nodiscard]] std::int64_t most_within(Moment from, Moment to) const {
    auto at = changes_.upper_bound(from);
    std::int64_t most = at == changes_.begin() ? 0 : std::prev(at)->second;
    for (; at != changes_.end() && at->first <= to; ++at) most = std::max(most, at->second);
    return most;
  }
  [[nodiscard]] std::int64_t usable() const { return usable_; }

 private:
  void note_block(std::vector<BlockAction>& calls) {
    std::sort(calls.begin(), calls.end(),
              [](const BlockAction& a, const BlockAction& b) { return a.invoked < b.invoked; });
    std::int64_t references = 0;
    Moment since = 0;
    Moment until = 0;
    for (const BlockAction& call : calls) {
      if (call.action == Action::claim || call.action == Action::pin || call.action == Action::touch) {
        if (references++ == 0) since = call.invoked;
      } else if (call.action == Action::release) {
        --references;
        until = std::max(until, call.returned);
        if (references == 0) add(since, until, 1);
      }
    }
    if (references > 0) add(since, ~Moment{0} - 1, 1);
  }
  void add(Moment from, Moment to, std::int64_t count) {
    changes_[from] += count;
    changes_[to + 1] -= count;
  }

  std::int64_t usable_;
  std::map<Moment, std::int64_t> changes_;  // after the constructor: the bound from that moment on
};

/// Spans in which a block carried a key without doubt: from the return of the publish to the invocation of what ended
/// it.
std::map<std::uint32_t, std::vector<std::pair<Moment, Moment>>> certain_spans(const History& history) {
  std::map<std::uint32_t, std::vector<BlockAction>> by_block;
  for (const BlockAction& call : history.actions) by_block[call.block].push_back(call);
  std::map<std::uint32_t, std::vector<std::pair<Moment, Moment>>> spans;
  for (const auto& [block, calls] : by_block) {
    for (const BlockAction& publish : calls) {
      if (publish.action != Action::publish) continue;
      Moment end = ~Moment{0};  // whatever may have ended it, also a call that began long before
      for (const BlockAction& other : calls) {
        const bool ends_content = other.action == Action::claim || other.action == Action::unpublish ||
                                  other.action == Action::evict || other.action == Action::move_away;
        if (ends_content && other.returned > publish.invoked) end = std::min(end, other.invoked);
      }
      if (end > publish.returned) spans[publish.key].push_back({publish.returned, end});
    }
  }
  return spans;
}

void check_refusals(const History& history, std::uint32_t usable, HistoryVerdict& verdict) {
  const CapacityBound bound(history, usable);
  for (const Allocation& allocation : history.allocations) {
    if (allocation.granted) continue;
    ++verdict.refusals;
    if (bound.most_within(allocation.invoked, allocation.returned) > bound.usable()) continue;
    verdict.allowed = false;
    verdict.reason = "thread " + std::to_string(allocation.thread) + " was refused " +
                     std::to_string(allocation.count) + " blocks between " + std::to_string(allocation.invoked) +
                     " and " + std::to_string(allocation.returned) + " although they were free all the time";
    return;
  }
  const auto spans = certain_spans(history);
  for (const Miss& miss : history.misses) {
    ++verdict.refusals;
    const auto found = spans.find(miss.key);
    if (found == spans.end()) continue;
    const bool carried =
        history.dropped == 0 && std::any_of(found->second.begin(), found->second.end(), [&miss](const auto& span) {
          return span.first < miss.invoked && miss.returned < span.second;
        });
    if (!carried) continue;
    if (!miss.pins_nothing && bound.most_within(miss.invoked, miss.returned) >= bound.usable()) continue;
    verdict.allowed = false;
    verdict.reason = "thread " + std::to_string(miss.thread) + " missed key " + std::to_string(miss.key) + " between " +
                     std::to_string(miss.invoked) + " and " + std::to_string(miss.returned) +
                     " although one block carried it all the time";
    return;
  }
}

}  // namespace

std::string describe(const BlockAction& action) {
  static constexpr const char* kNames[] = {
      "claim",           "pin",   "touch",     "publish",         "release",  "unpublish",
      "publish further", "evict", "move away", "publish in vain", "take back"};
  std::string text = "[" + std::to_string(action.invoked) + "," + std::to_string(action.returned) + "] thread " +
                     std::to_string(action.thread) + " " + kNames[static_cast<int>(action.action)] + " block " +
                     std::to_string(action.block);
  if (action.key != 0) text += " key " + std::to_string(action.key);
  return text;
}

namespace {

/// A chain is published in its order: when somebody has pinned one of its elements, all before it are published.
void order_chains(History& history) {
  for (const auto& [first, length] : history.chains) {
    for (std::size_t later = first + length - 1; later > first; --later) {
      const BlockAction& publish = history.actions[later];
      Moment seen = publish.returned;
      for (const BlockAction& pin : history.actions) {
        if (pin.action == Action::pin && pin.block == publish.block && pin.key == publish.key &&
            pin.invoked >= publish.invoked) {
          seen = std::min(seen, pin.returned);
        }
      }
      history.actions[later - 1].returned = std::min(history.actions[later - 1].returned, seen);
    }
  }
}

}  // namespace

HistoryVerdict check_history(const History& recorded, std::uint32_t usable_blocks) {
  History history = recorded;
  order_chains(history);
  HistoryVerdict verdict;
  verdict.actions = history.actions.size();
  std::map<std::uint32_t, std::vector<BlockAction>> by_block;
  for (BlockAction call : history.actions) {
    if (history.dropped > 0 && call.action == Action::unpublish && call.key == 0) call.key = kNoneOrDropped;
    by_block[call.block].push_back(call);
    if (call.action != Action::publish_in_vain) continue;
    call.action = Action::take_back;
    by_block[call.block].push_back(call);
  }
  for (auto& [block, calls] : by_block) {
    check_block(std::move(calls), verdict);
    if (!verdict.allowed) return verdict;
  }
  check_refusals(history, usable_blocks, verdict);
  return verdict;
}

}  // namespace kvpool::stress
