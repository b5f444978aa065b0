#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>

#include "tests/launch/serve_harness.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/launch/driver/job.hpp"
#include "tools/launch/report.hpp"
#include "tools/launch/verify/solo_run.hpp"

namespace kvpool::launch {
namespace {

TEST_F(ServeTest, OutputsDoNotDependOnRanksThreadsChunksOrMemory) {
  LaunchOptions options = small_options();
  const LaunchReport base = successful_run(options, 1);
  EXPECT_EQ(base.serve.counters.finished, 24);
  EXPECT_EQ(base.serve.output_digest.size(), 64U);
  EXPECT_GT(base.serve.counters.hit_tokens, 0);

  for (const int ranks : {2, 4, 8}) {
    EXPECT_EQ(successful_run(options, ranks).serve.output_digest, base.serve.output_digest) << ranks << " ranks";
  }
  options.schedulers = 4;
  EXPECT_EQ(successful_run(options, 1).serve.output_digest, base.serve.output_digest) << "4 threads";
  options.step_tokens = 23;
  EXPECT_EQ(successful_run(options, 2).serve.output_digest, base.serve.output_digest) << "chunks of 23";
#ifndef KVPOOL_SANITIZED_BUILD
  options.compute_threads = 3;
  EXPECT_EQ(successful_run(options, 2).serve.output_digest, base.serve.output_digest) << "3 compute threads";
  options.compute_threads = 1;
#endif
  options.max_running = 1;
  EXPECT_EQ(successful_run(options, 1).serve.output_digest, base.serve.output_digest) << "one after the other";
}

TEST_F(ServeTest, PreemptionChangesNothingButTheWork) {
  LaunchOptions options = small_options();
  const LaunchReport roomy = successful_run(options, 1);
  EXPECT_EQ(roomy.serve.counters.preemptions, 0);
  // A block takes 2 layers x 2 heads x 16 tokens x 16 elements x K and V x 4 bytes = 8 KiB on one rank.
  options.memory = 24 * 8192;
  for (const std::int64_t schedulers : {1, 4}) {
    options.schedulers = schedulers;
    const LaunchReport tight = successful_run(options, 1);
    EXPECT_EQ(tight.num_blocks(), 24);
    EXPECT_GT(tight.serve.counters.preemptions, 0);
    EXPECT_GT(tight.serve.evictions, 0U);
    EXPECT_TRUE(tight.serve.refusals.empty());
    EXPECT_EQ(tight.serve.output_digest, roomy.serve.output_digest) << schedulers << " threads";
  }
  options.memory = 24 * 4096;  // two ranks: half the heads, half the bytes
  EXPECT_EQ(successful_run(options, 2).serve.output_digest, roomy.serve.output_digest);
}

TEST_F(ServeTest, VerifiesAgainstTheDenseReferenceAndOneRank) {
  LaunchOptions options = small_options();
  options.verify = 5;
  options.schedulers = 3;
  const LaunchReport report = successful_run(options, 2);
  ASSERT_TRUE(report.verify);
  EXPECT_EQ(report.verify->requests, 5);
  EXPECT_TRUE(report.verify->bitwise_equal);
  EXPECT_LE(report.verify->max_rel_l2, 1e-5);
  EXPECT_GT(report.verify->max_rel_l2, 0.0);
  EXPECT_EQ(exit_status_of(report), tools::kExitOk);
  EXPECT_NE(to_table(options, report).find("attention verified: 5 requests"), std::string::npos);
}

TEST_F(ServeTest, SlidingWindowLayersAndBfloat16Verify) {
  LaunchOptions options = small_options(16);
  options.verify = 4;
  options.model = small_model(R"(, "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"])");
  const LaunchReport one = successful_run(options, 1);
  ASSERT_TRUE(one.verify);
  EXPECT_TRUE(one.verify->passed()) << one.verify->worst << " " << one.verify->max_rel_l2;
  EXPECT_EQ(successful_run(options, 2).serve.output_digest, one.serve.output_digest);

  options.model = small_model(R"(, "torch_dtype": "bfloat16")");
  const LaunchReport half = successful_run(options, 2);
  ASSERT_TRUE(half.verify);
  EXPECT_TRUE(half.verify->passed()) << half.verify->worst << " " << half.verify->max_rel_l2;
  EXPECT_NE(half.serve.output_digest, one.serve.output_digest);
}

TEST_F(ServeTest, AWrongOutputIsFound) {
  LaunchOptions options = small_options(8);
  auto job = read_job(options, 1);
  ASSERT_TRUE(job.ok()) << job.error().message;
  const std::vector<std::int64_t> chosen = choose_samples(job->workload->items(), 2);
  VerifyOptions verify;
  verify.executor.fixed_split = kKeysPerSplit;
  verify.executor.exec.max_threads = 1;
  verify.bitwise_layers = 2;
  const TinyModel whole(job->model, all_heads(job->model), best_row_product_tier());
  std::map<std::int64_t, RequestOutputs> samples;
  for (const std::int64_t index : chosen) {
    const scheduler::WorkItem& item = job->workload->items()[static_cast<std::size_t>(index)];
    std::vector<TokenId> tokens = job->workload->prompt(index);
    for (std::int64_t i = 0; i + 1 < item.output_tokens; ++i) tokens.push_back(job->workload->output(index, i));
    const auto outputs = run_alone(whole, {}, verify.executor, tokens, static_cast<std::size_t>(item.output_tokens));
    ASSERT_TRUE(outputs.ok());
    samples[index] = {true, outputs->rows, outputs->heads, outputs->hidden};
  }
  const auto check = [&] {
    return verify_samples(job->model, *job->workload, job->workload->items(), samples, verify);
  };
  const auto sound = check();
  ASSERT_TRUE(sound.ok());
  EXPECT_TRUE(sound->passed());

  // One bit of one element: bitwise different, though far within the tolerance.
  float& element = samples[chosen[1]].heads[5];
  element = std::nextafter(element, 2.0F);
  const auto one_bit = check();
  ASSERT_TRUE(one_bit.ok());
  EXPECT_FALSE(one_bit->bitwise_equal);
  EXPECT_FALSE(one_bit->passed());
  EXPECT_NE(one_bit->worst.find("request " + std::to_string(chosen[1]) + ", output 0, layer 0"), std::string::npos);

  // Two heads swapped, the first layer exempt from nothing.
  std::swap_ranges(samples[chosen[0]].heads.begin(), samples[chosen[0]].heads.begin() + 16,
                   samples[chosen[0]].heads.begin() + 16);
  const auto swapped = check();
  ASSERT_TRUE(swapped.ok());
  EXPECT_GT(swapped->max_rel_l2, 0.01);

  samples[chosen[0]].heads[0] = std::nanf("");
  const auto nan = check();
  ASSERT_TRUE(nan.ok());
  EXPECT_FALSE(nan->passed());
}

TEST_F(ServeTest, RefusesOversizedRequestsAndServesTheRest) {
  LaunchOptions options = small_options();
  options.memory = 9 * 8192;  // 8 blocks to use: 128 tokens
  const LaunchReport report = successful_run(options, 1);
  ASSERT_FALSE(report.serve.refusals.empty());
  EXPECT_EQ(report.serve.counters.finished + static_cast<std::int64_t>(report.serve.refusals.size()), 24);
  for (const scheduler::Refusal& refusal : report.serve.refusals) {
    EXPECT_GT(refusal.blocks_needed, 8);
    EXPECT_EQ(refusal.blocks_usable, 8);
  }
  EXPECT_EQ(exit_status_of(report), tools::kExitBadInput);
  options.schedulers = 4;
  EXPECT_EQ(successful_run(options, 2).serve.output_digest.size(), 64U);
}

TEST_F(ServeTest, RanksReportTheirMemoryAndAgreeOnTheSmallest) {
  LaunchOptions options = small_options(4);
  options.memory.reset();
  const LaunchReport report = successful_run(options, 2);
  ASSERT_EQ(report.ranks.size(), 2U);
  for (const RankMemory& memory : report.ranks) {
    EXPECT_GT(memory.total, 0);
    EXPECT_GT(memory.peak, 0);
    EXPECT_GE(memory.peak, memory.non_pool);
    EXPECT_LE(memory.available, std::int64_t{1} << 30);
    EXPECT_LE(report.num_blocks(), memory.num_blocks);
    EXPECT_EQ(memory.num_blocks, memory.available / 4096);
    EXPECT_EQ(memory.backend, "cpu");
  }
  const tools::Json json = to_json(options, report);
  for (const char* key :
       {"output_digest", "ranks", "num_blocks", "requests", "tokens", "hit_tokens", "hit_ratio_tokens", "preemptions",
        "evictions", "steps", "seconds", "tokens_per_second", "verify", "divergence_alarms", "interrupted"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"total", "peak", "non_pool", "available", "num_blocks", "backend", "device"}) {
    EXPECT_TRUE(json["ranks"][1].contains(key)) << key;
  }
  for (const tools::Json& rank : json["ranks"]) {
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : rank["ledger"].items()) {
      if (name != "total" && bytes.is_number()) sum += bytes.get<std::int64_t>();
    }
    EXPECT_EQ(sum, rank["total"]) << "every byte has a name";
    EXPECT_EQ(rank["ledger"]["total"], rank["total"]);
    EXPECT_GT(rank["ledger"]["weights"], 0);
  }
  const std::string table = to_table(options, report);
  EXPECT_NE(table.find("\n  peak_activations"), std::string::npos) << table;
}

TEST_F(ServeTest, AnInterruptionKeepsWhatIsThere) {
  LaunchOptions options = small_options();
  options.verify = 2;
  std::atomic<int> asked{0};
  ServeHooks hooks = quiet_hooks();
  hooks.interrupted = [&asked] { return asked.fetch_add(1) == 5; };
  const std::vector<RankOutcome> outcomes = run_ranks(options, 2, hooks);
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.error);
  ASSERT_TRUE(outcomes[0].report);
  EXPECT_TRUE(outcomes[0].report->serve.interrupted);
  EXPECT_EQ(outcomes[0].report->serve.steps, 5);
  EXPECT_FALSE(outcomes[0].report->verify);
  EXPECT_EQ(exit_status_of(*outcomes[0].report), tools::kExitInterrupted);
}

TEST_F(ServeTest, WrongInputIsTheSameErrorOnEveryRank) {
  const auto expect_refused = [](const LaunchOptions& options, int ranks, const std::string& text) {
    const std::vector<RankOutcome> outcomes = run_ranks(options, ranks);
    for (const RankOutcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.error) << text;
      EXPECT_TRUE(outcome.common_input_error);
      EXPECT_EQ(tools::exit_status_of(outcome.error->code), tools::kExitBadInput) << outcome.error->message;
      EXPECT_NE(outcome.error->message.find(text), std::string::npos) << outcome.error->message;
    }
  };
  expect_refused(small_options(), 16, "16 ranks for 8 query heads");
  expect_refused(small_options(), 3, "8 query heads do not divide by 3 ranks");

  LaunchOptions memory = small_options();
  memory.memory = 8191;
  expect_refused(memory, 1, "--memory 8191 bytes: a block of 16 tokens takes 8192 bytes");

  LaunchOptions block = small_options();
  block.block_size = 24;
  expect_refused(block, 2, "--block-size 24 does not divide the 256 keys");

  LaunchOptions missing = small_options();
  missing.trace = "/nonexistent/trace.kvt";
  expect_refused(missing, 2, "/nonexistent/trace.kvt");

  LaunchOptions negative = small_options();
  negative.trace = write("negative.kvt", "# kvtrace 1\n# kind ids\n# title x\n# block_size 16\n0 -1 -5 2 0\n");
  expect_refused(negative, 2, "negative.kvt:5");

  LaunchOptions empty = small_options();
  empty.trace = write("empty.kvt", "# kvtrace 1\n# kind ids\n# title x\n# block_size 16\n");
  expect_refused(empty, 1, "no requests");

  LaunchOptions model = small_options();
  model.model = write("bad.json", R"({"num_hidden_layers": -1})");
  expect_refused(model, 2, "num_hidden_layers is -1");
}

TEST_F(ServeTest, ASilentRankEndsTheOthersWithinTheDeadline) {
  LaunchOptions options = small_options();
  options.deadline = std::chrono::milliseconds(1500);
  auto communicators = make_thread_communicators(3);
  options.model = write("six.json", R"({"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3,
                                       "head_dim": 8})");
  std::vector<RankOutcome> outcomes(2);
  const RankEnvironment environment{"threads", 3};
  const ServeHooks hooks = quiet_hooks();
  std::vector<std::thread> threads;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = run_rank(options, *communicators[rank], environment, hooks); });
  }
  for (std::thread& thread : threads) thread.join();  // rank 2 never comes
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const RankOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(tools::exit_status_of(outcome.error->code), tools::kExitEnvironment) << outcome.error->message;
    EXPECT_NE(outcome.error->message.find("rank 2"), std::string::npos) << outcome.error->message;
  }
}

}  // namespace
}  // namespace kvpool::launch
