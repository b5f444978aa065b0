// What a scheduler pays per request and per step: look-ups, decode steps, prefills, releases. One thread.
#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>

#include "tools/bench/families.hpp"
#include "tools/bench/request_bench.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::int64_t kLongPrompt = 131'072;  // tokens
constexpr std::int64_t kShortPrompt = 1'024;
constexpr std::int64_t kHitBlocks = 2'000;
constexpr std::int64_t kPrefillBlocks = 512;
constexpr std::size_t kRunning = 256;

Sample sample_of(Seconds time, double blocks) {
  Sample sample;
  sample.ns_per_block = blocks > 0 ? time.count() * 1e9 / blocks : 0;
  sample.ops_per_second = time.count() > 0 ? blocks / time.count() : 0;
  return sample;
}

/// Repeats `call` for a while; `per_call` is what one call counts for. The sum of its answers is kept, so that no
/// call can be left out.
template <class Call>
Sample repeated(double seconds, double per_call, Call&& call) {
  const auto start = Clock::now();
  Seconds passed{};
  double calls = 0;
  double answers = 0;
  do {
    for (int i = 0; i < 16; ++i) {
      answers += call();
    }
    calls += 16;
    passed = Clock::now() - start;
  } while (passed.count() < seconds);
  Sample sample = sample_of(passed, calls * per_call);
  sample.more["answer"] = answers / calls;
  return sample;
}

/// A look-up that finds 2,000 blocks, and one whose first block is missing.
void bench_lookups(const BenchPlan& plan) {
  auto bench = std::make_shared<RequestBench>(16'384, kLongPrompt);
  auto entry = std::make_shared<RequestBench::Entry>(bench->make(1, (kHitBlocks * kBlockTokens) + 1));
  bench->prefill(*entry);
  auto missing = std::make_shared<RequestBench::Entry>(bench->make(2, (kHitBlocks * kBlockTokens) + 1));
  const auto look_up = [bench](const Request& request) {
    return static_cast<double>(bench->manager().get_computed_blocks(request).num_computed_tokens);
  };
  const std::vector<Contender> contenders{
      {{"lookup_2000_blocks"},
       "kvpool",
       1,
       [=, seconds = plan.seconds] {
         return std::vector<Sample>{repeated(seconds, kHitBlocks, [&] { return look_up(entry->request); })};
       }},
      {{"lookup_first_missing"}, "kvpool", 1, [=, seconds = plan.seconds] {
         return std::vector<Sample>{repeated(seconds, 1, [&] { return look_up(missing->request); })};
       }}};
  for (BenchRow& row : interleave(plan, contenders)) {
    plan.report->add(std::move(row));
  }
}

/// Running requests that get one token per step; started over when they reach `max_tokens`. The pool has room for
/// `pool_tokens` of each.
class DecodeLoop {
 public:
  DecodeLoop(std::size_t running, std::int64_t prompt, std::int64_t max_tokens, std::int64_t pool_tokens, bool by_id)
      : bench_(blocks_for(running, pool_tokens), pool_tokens),
        running_(running),
        prompt_(prompt),
        max_tokens_(max_tokens),
        by_id_(by_id) {
    start_over();
  }
  ~DecodeLoop() {
    for (auto& entry : entries_) {
      release(entry);
    }
  }
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;

  /// Steps until `seconds` of allocate_slots have been measured.
  Sample run(double seconds) {
    Seconds measured{};
    double calls = 0;
    while (measured.count() < seconds && !interrupt_requested()) {
      if (entries_.front().request.num_tokens() >= max_tokens_) {
        start_over();
      }
      const TokenId token = 17;
      for (auto& entry : entries_) {
        entry.request.append_tokens({&token, 1});
      }
      const auto start = Clock::now();
      for (auto& entry : entries_) {
        allocate(entry);
      }
      measured += Clock::now() - start;
      for (auto& entry : entries_) {
        entry.request.num_computed_tokens = entry.request.num_tokens();
      }
      calls += static_cast<double>(entries_.size());
    }
    Sample sample = sample_of(measured, calls);
    sample.more["step_us"] = *sample.ns_per_block * static_cast<double>(running_) * 1e-3;
    return sample;
  }

 private:
  static std::int64_t blocks_for(std::size_t running, std::int64_t max_tokens) {
    return (static_cast<std::int64_t>(running) * (max_tokens / kBlockTokens + 1)) + 1;
  }

  void release(RequestBench::Entry& entry) {
    if (by_id_) {
      bench_.manager().free(entry.request);
    } else {
      bench_.manager().free(entry.sequence);
    }
  }

  void allocate(RequestBench::Entry& entry) {
    AllocateSlots arguments;
    arguments.num_new_tokens = entry.request.num_tokens() - entry.request.num_computed_tokens;
    const auto slots = by_id_ ? bench_.manager().allocate_slots(entry.request, arguments)
                              : bench_.manager().allocate_slots(entry.request, entry.sequence, arguments);
    failures_ += slots && slots->outcome == AllocateOutcome::allocated ? 0U : 1U;
  }

  void start_over() {
    for (auto& entry : entries_) {
      release(entry);
    }
    entries_.clear();
    for (std::size_t i = 0; i < running_; ++i) {
      entries_.push_back(bench_.make(++number_, prompt_));
      allocate(entries_.back());
      entries_.back().request.num_computed_tokens = prompt_;
    }
  }

  RequestBench bench_;
  std::size_t running_;
  std::int64_t prompt_;
  std::int64_t max_tokens_;
  bool by_id_;
  std::uint64_t number_ = 0;
  std::uint64_t failures_ = 0;
  std::deque<RequestBench::Entry> entries_;
};

constexpr std::int64_t kDecoded = 2'048;  // tokens behind the prompt

Contender decode(const BenchPlan& plan, std::string row, std::string pool, std::size_t running, std::int64_t prompt,
                 std::int64_t longest_prompt, bool by_id) {
  auto loop = std::make_shared<DecodeLoop>(running, prompt, prompt + kDecoded, longest_prompt + kDecoded, by_id);
  return {{std::move(row)}, std::move(pool), 1, [loop, seconds = plan.seconds] {
            return std::vector<Sample>{loop->run(seconds)};
          }};
}

void bench_decode(const BenchPlan& plan) {
  std::vector<Contender> contenders;
  if (plan.wants("decode_256_running")) {
    const std::size_t running = plan.smoke ? 16 : kRunning;
    contenders.push_back(decode(plan, "decode_256_running", "kvpool", running, 512, 512, false));
    contenders.push_back(decode(plan, "decode_256_running", "by_id", running, 512, 512, true));
  }
  if (plan.wants("decode_long_prompt")) {
    // Pools of one size: what is compared is the length of the requests, not that of the tables behind the pool.
    const std::int64_t longest = plan.smoke ? 2 * kShortPrompt : kLongPrompt;
    contenders.push_back(decode(plan, "decode_long_prompt", "1k_tokens", 8, kShortPrompt, longest, false));
    contenders.push_back(decode(plan, "decode_long_prompt", "128k_tokens", 8, longest, longest, false));
  }
  std::vector<BenchRow> rows = interleave(plan, contenders);
  const BenchRow* brief = find_row(rows, "decode_long_prompt", "1k_tokens");
  const double unit = brief != nullptr ? brief->ns_per_block.value_or(0) : 0;
  for (BenchRow& row : rows) {
    if (row.pool == "128k_tokens" && unit > 0) {
      row.more["over_1k"] = row.ns_per_block.value_or(0) / unit;
    }
    plan.report->add(std::move(row));
  }
}

/// Prefills of 512 blocks in a pool whose free blocks all carry content of earlier requests, and their release.
void bench_prefill(const BenchPlan& plan) {
  auto bench = std::make_shared<RequestBench>(8'192, 2 * kPrefillBlocks * kBlockTokens);
  auto number = std::make_shared<std::uint64_t>(0);
  for (int i = 0; i < 20; ++i) {  // every block has been used
    auto entry = bench->make(++*number, kPrefillBlocks * kBlockTokens);
    bench->prefill(entry);
    bench->manager().free(entry.sequence);
  }
  const auto run = [=, seconds = plan.seconds] {
    Seconds allocating{};
    Seconds freeing{};
    double blocks = 0;
    while (allocating.count() < seconds && !interrupt_requested()) {
      auto entry = bench->make(++*number, kPrefillBlocks * kBlockTokens);  // hashed here, not measured
      const auto start = Clock::now();
      const bool fits = bench->prefill(entry);
      const auto middle = Clock::now();
      bench->manager().free(entry.sequence);
      freeing += Clock::now() - middle;
      allocating += middle - start;
      blocks += fits ? static_cast<double>(kPrefillBlocks) : 0;
    }
    return std::vector<Sample>{sample_of(allocating, blocks), sample_of(freeing, blocks)};
  };
  for (BenchRow& row : interleave(plan, {{{"prefill_512_evicting", "free_512_blocks"}, "kvpool", 1, run}})) {
    plan.report->add(std::move(row));
  }
}

}  // namespace

void bench_requests(const BenchPlan& plan) {
  if (plan.wants("lookup_2000_blocks") || plan.wants("lookup_first_missing")) {
    bench_lookups(plan);
  }
  if ((plan.wants("decode_256_running") || plan.wants("decode_long_prompt")) && !interrupt_requested()) {
    bench_decode(plan);
  }
  if ((plan.wants("prefill_512_evicting") || plan.wants("free_512_blocks")) && !interrupt_requested()) {
    bench_prefill(plan);
  }
}

}  // namespace kvpool::tools
