// What a scheduler pays per request and per step: look-ups, decode steps, prefills, releases. One thread.
#include <array>
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

/// What is decoded, and what of a step is measured.
struct DecodeCase {
  std::size_t running = 8;
  std::int64_t prompt = kShortPrompt;          ///< tokens
  std::int64_t longest_prompt = kShortPrompt;  ///< which the pool has room for
  BenchModel model = BenchModel::full;
  bool by_id = false;
  bool whole_step = false;  ///< also what a scheduler asks once a step
  bool used_pool = false;   ///< the longest prompts have run before: every block carries content
};

constexpr std::int64_t kDecoded = 2'048;  // tokens behind the prompt

/// Running requests that get one token per step; started over after kDecoded of them.
class DecodeLoop {
 public:
  explicit DecodeLoop(const DecodeCase& decoded)
      : case_(decoded),
        bench_(blocks_for(decoded), decoded.longest_prompt + kDecoded, decoded.model),
        max_tokens_(decoded.prompt + kDecoded) {
    if (decoded.used_pool) {
      start_over(decoded.longest_prompt);
    }
    start_over(decoded.prompt);
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
        start_over(case_.prompt);
      }
      const TokenId token = 17;
      for (auto& entry : entries_) {
        entry.request.append_tokens({&token, 1});
      }
      const auto start = Clock::now();
      for (auto& entry : entries_) {
        allocate(entry);
      }
      if (case_.whole_step) {
        end_step();
      }
      measured += Clock::now() - start;
      if (!case_.whole_step) {
        end_step();
      }
      for (auto& entry : entries_) {
        entry.request.num_computed_tokens = entry.request.num_tokens();
      }
      calls += static_cast<double>(entries_.size());
    }
    Sample sample = sample_of(measured, calls);
    sample.more["step_us"] = *sample.ns_per_block * static_cast<double>(case_.running) * 1e-3;
    return sample;
  }

 private:
  static std::int64_t blocks_for(const DecodeCase& decoded) {
    const bool two_groups = decoded.model == BenchModel::full_window || decoded.model == BenchModel::full_state;
    const std::int64_t tables = static_cast<std::int64_t>(decoded.running) * (two_groups ? 2 : 1);
    return (tables * ((decoded.longest_prompt + kDecoded) / kBlockTokens + 1)) + 1;
  }

  /// What the scheduler asks once a step: blocks to copy and to clear, and the prefix that all requests share.
  void end_step() {
    KVCacheManager& manager = bench_.manager();
    answers_ += manager.take_block_copies().size() + manager.take_new_block_ids().size();
    for (const std::int64_t blocks : manager.get_num_common_prefix_blocks(entries_.front().sequence)) {
      answers_ += static_cast<std::uint64_t>(blocks);
    }
    manager.new_step_starts();
  }

  void release(RequestBench::Entry& entry) {
    if (case_.by_id) {
      bench_.manager().free(entry.request);
    } else {
      bench_.manager().free(entry.sequence);
    }
  }

  void allocate(RequestBench::Entry& entry) {
    AllocateSlots arguments;
    arguments.num_new_tokens = entry.request.num_tokens() - entry.request.num_computed_tokens;
    const auto slots = case_.by_id ? bench_.manager().allocate_slots(entry.request, arguments)
                                   : bench_.manager().allocate_slots(entry.request, entry.sequence, arguments);
    failures_ += slots && slots->outcome == AllocateOutcome::allocated ? 0U : 1U;
  }

  void start_over(std::int64_t prompt) {
    for (auto& entry : entries_) {
      release(entry);
    }
    entries_.clear();
    for (std::size_t i = 0; i < case_.running; ++i) {
      entries_.push_back(bench_.make(++number_, prompt));
      allocate(entries_.back());
      entries_.back().request.num_computed_tokens = prompt;
      // What the prompt leaves behind its window is the prefill's to give back, not the first decode step's.
      if (case_.by_id) {
        bench_.manager().remove_skipped_blocks(entries_.back().request, prompt);
      } else {
        bench_.manager().remove_skipped_blocks(entries_.back().request, entries_.back().sequence, prompt);
      }
    }
  }

  DecodeCase case_;
  RequestBench bench_;
  std::int64_t max_tokens_;
  std::uint64_t number_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t answers_ = 0;  ///< kept, so that no call can be left out
  std::deque<RequestBench::Entry> entries_;
};

Contender decode(const BenchPlan& plan, std::string row, std::string pool, const DecodeCase& decoded) {
  auto loop = std::make_shared<DecodeLoop>(decoded);
  return {{std::move(row)}, std::move(pool), 1, [loop, seconds = plan.seconds] {
            return std::vector<Sample>{loop->run(seconds)};
          }};
}

/// Decode calls of requests of 1,024 tokens and of 131,072, by kind of layer; in pools of one size and history, so that
/// the length of the requests is compared and not what the pool does.
void bench_long_prompts(const BenchPlan& plan) {
  struct Row {
    const char* name;
    BenchModel model;
    bool whole_step;
  };
  constexpr std::array<Row, 6> kRows{{{"decode_long_prompt", BenchModel::full, false},
                                      {"decode_long_prompt_step", BenchModel::full, true},
                                      {"decode_long_window", BenchModel::window, false},
                                      {"decode_long_chunked", BenchModel::chunked, false},
                                      {"decode_long_full_window", BenchModel::full_window, false},
                                      {"decode_long_full_state", BenchModel::full_state, false}}};
  for (const Row& row : kRows) {
    if (!plan.wants(row.name) || interrupt_requested()) {
      continue;
    }
    DecodeCase brief;
    brief.running = row.whole_step ? 1 : brief.running;  // one request shares its whole table with itself
    brief.model = row.model;
    brief.whole_step = row.whole_step;
    brief.used_pool = true;
    brief.longest_prompt = plan.smoke ? 2 * kShortPrompt : kLongPrompt;
    DecodeCase longest = brief;
    longest.prompt = brief.longest_prompt;
    std::vector<BenchRow> rows =
        interleave(plan, {decode(plan, row.name, "1k_tokens", brief), decode(plan, row.name, "128k_tokens", longest)});
    if (rows.size() == 2 && rows[0].ns_per_block.value_or(0) > 0) {
      rows[1].more["over_1k"] = rows[1].ns_per_block.value_or(0) / *rows[0].ns_per_block;
    }
    for (BenchRow& each : rows) {
      plan.report->add(std::move(each));
    }
  }
}

void bench_decode(const BenchPlan& plan) {
  if (!plan.wants("decode_256_running")) {
    return;
  }
  DecodeCase decoded;
  decoded.running = plan.smoke ? 16 : kRunning;
  decoded.prompt = decoded.longest_prompt = 512;
  DecodeCase by_id = decoded;
  by_id.by_id = true;
  for (BenchRow& row : interleave(plan, {decode(plan, "decode_256_running", "kvpool", decoded),
                                         decode(plan, "decode_256_running", "by_id", by_id)})) {
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
  if (!interrupt_requested()) {
    bench_decode(plan);
    bench_long_prompts(plan);
  }
  if ((plan.wants("prefill_512_evicting") || plan.wants("free_512_blocks")) && !interrupt_requested()) {
    bench_prefill(plan);
  }
}

}  // namespace kvpool::tools
