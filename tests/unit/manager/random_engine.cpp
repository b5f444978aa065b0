#include "tests/unit/manager/random_engine.hpp"

#include <algorithm>

namespace kvpool::test {
namespace {

bool is_align(const KVCacheGroup& group) {
  const auto* state = std::get_if<MambaSpec>(&group.spec);
  return state != nullptr && state->cache_mode == MambaCacheMode::align;
}

}  // namespace

EngineOptions RandomEngine::random_options(std::mt19937& random, std::string& description) {
  const auto pick = [&random](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(count));
  };
  EngineOptions options;
  options.hash_block_size = 4;
  const std::int64_t model = pick(9);
  const std::int64_t w = 3 + pick(20);
  switch (model) {
    case 0: options.groups = {full(4)}; break;
    case 1: options.groups = {window(4, w)}; break;
    case 2: options.groups = {full(8), window(4, w)}; break;
    case 3: options.groups = {window(4, w), full(4), window(8, 2 * w)}; break;
    case 4: options.groups = {full(4), chunked(4, 8)}; break;
    case 5: options.groups = {full(4), mamba(4, MambaCacheMode::all, pick(2))}; break;
    case 6: options.groups = {full(8), mamba(8, MambaCacheMode::align, pick(3))}; break;
    case 7: options.groups = {full(8), mamba(8, MambaCacheMode::align), window(4, w)}; break;
    default: options.groups = {full(4), full(4), window(4, w), window(4, w)}; break;
  }
  const bool sparse = model != 0 && model != 4;
  if (sparse && pick(3) == 0) options.retention_interval = 8 * pick(4);
  options.num_blocks = 30 + pick(60);
  options.manager.enable_kv_cache_events = true;
  options.manager.enable_caching = pick(8) != 0;
  options.manager.free_order = pick(3) == 0 ? FreeOrder::append : FreeOrder::split;
  options.manager.use_eagle = model != 4 && pick(4) == 0;
  if (options.manager.use_eagle) options.manager.num_prefill_lookahead = pick(4);
  options.manager.duplicates = pick(4) == 0 ? DuplicatePolicy::skip : DuplicatePolicy::keep;
  options.manager.watermark = pick(4) == 0 ? 0.05 : 0.0;
  description = "model " + std::to_string(model) + " blocks " + std::to_string(options.num_blocks) + " window " +
                std::to_string(w) +
                (options.manager.use_eagle ? " drafts " + std::to_string(options.manager.num_prefill_lookahead) : "") +
                (options.manager.duplicates == DuplicatePolicy::skip ? " skip" : "") +
                (options.retention_interval ? " interval " + std::to_string(*options.retention_interval) : "");
  return options;
}

RandomEngine::RandomEngine(unsigned seed) : random_(seed), engine_(random_options(random_, description_)) {
  for (const KVCacheGroup& group : engine_->config().groups) {
    if (is_align(group)) align_block_ = block_size(group.spec);
    has_state_ = has_state_ || std::holds_alternative<MambaSpec>(group.spec);
  }
}

// Few prefixes and few branches, so that requests meet.
std::vector<TokenId> RandomEngine::random_prompt() {
  std::vector<TokenId> prompt;
  const std::int64_t length = 3 + pick(50);
  TokenId base = 1000 * pick(3);
  while (static_cast<std::int64_t>(prompt.size()) < length) {
    if (chance(10)) base += 100 * (1 + pick(3));
    prompt.push_back(base + static_cast<TokenId>(prompt.size()));
  }
  return prompt;
}

// State groups in mode "align" keep a state only where a step ends, so steps end at block boundaries and
// at the prompt's last hash boundary.
std::int64_t RandomEngine::chunk_end(const Running& running) {
  const std::int64_t computed = running.request.num_computed_tokens;
  const std::int64_t end = std::min(computed + 1 + pick(24), running.request.num_tokens());
  if (align_block_ == 0) return end;
  for (const std::int64_t unit : {align_block_, std::int64_t{4}}) {
    const std::int64_t aligned = end / unit * unit;
    if (aligned > computed) {
      const std::int64_t last_hash = running.request.num_prompt_tokens() / 4 * 4;
      if (unit == align_block_ || aligned == last_hash) return aligned;
    }
  }
  return end == running.request.num_tokens()
             ? end
             : std::min((computed / align_block_ + 1) * align_block_, running.request.num_tokens());
}

void RandomEngine::write(const Running& running, std::int64_t from, std::int64_t to) {
  const std::span<const TokenId> all = running.request.tokens();
  const auto prefix = [&all](std::int64_t length) { return Content(all.begin(), all.begin() + length); };
  const std::vector<KVCacheGroup>& groups = engine_->config().groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t size = block_size(groups[g].spec);
    const Ids table = engine_.table(running, static_cast<std::uint32_t>(g));
    for (std::int64_t i = from / size; i <= (to - 1) / size; ++i) {
      const std::uint32_t block = table[static_cast<std::size_t>(i)];
      if (block == 0) continue;
      const std::int64_t end = std::min((i + 1) * size, to);
      ASSERT_EQ(engine_.pool().ref_count(BlockId{block}), 1U) << description_ << ": written while shared";
      content_[block] = prefix(end);
    }
  }
}

void RandomEngine::copy_blocks() {
  for (const BlockCopy& copy : engine_->take_block_copies()) {
    content_[copy.target.value()] = content_[copy.source.value()];
    engine_.pool().free_blocks(std::vector{copy.source, copy.target});
  }
}

void RandomEngine::check_hit(const Running& running, const PrefixHit& hit) {
  const std::span<const TokenId> all = running.request.tokens();
  ASSERT_LT(hit.num_computed_tokens, running.request.num_tokens());
  const std::vector<KVCacheGroup>& groups = engine_->config().groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t size = block_size(groups[g].spec);
    const bool state = std::holds_alternative<MambaSpec>(groups[g].spec);
    for (std::size_t i = 0; i < hit.blocks.groups[g].size(); ++i) {
      const BlockHandle block = hit.blocks.groups[g][i];
      if (block.is_null()) continue;
      const std::int64_t needed = std::min(static_cast<std::int64_t>(i + 1) * size, hit.num_computed_tokens);
      const Content& content = content_[block.id.value()];
      const auto length = static_cast<std::int64_t>(content.size());
      ASSERT_TRUE(state ? length == needed : length >= needed) << description_ << ": block " << block.id.value();
      ASSERT_TRUE(std::equal(all.begin(), all.begin() + needed, content.begin())) << description_;
    }
  }
}

bool RandomEngine::run(Running& running, std::int64_t count, AllocateSlots arguments) {
  arguments.num_new_tokens = count;
  arguments.num_lookahead_tokens = engine_->options().use_eagle ? pick(3) : 0;
  arguments.full_sequence_must_fit = chance(30);
  arguments.has_scheduled_reqs = !running_.empty();
  const std::int64_t local = running.request.num_computed_tokens + arguments.num_new_computed_tokens;
  const std::int64_t computed = local + arguments.num_external_computed_tokens;
  engine_->remove_skipped_blocks(running.request, running.sequence, computed);
  const Ids order = engine_.free_order();
  const std::size_t keys = engine_.pool().num_cached_keys();
  apply_events();
  const auto forecast = engine_->can_allocate_slots(running.request, running.sequence, arguments);
  const auto slots = engine_->allocate_slots(running.request, running.sequence, arguments);
  EXPECT_TRUE(forecast && slots) << description_;
  EXPECT_EQ(*forecast, slots->outcome) << description_ << ": the forecast is wrong";
  if (slots->outcome != AllocateOutcome::allocated) {
    EXPECT_EQ(engine_.free_order(), order) << description_ << ": a refusal changed the order";
    EXPECT_EQ(engine_.pool().num_cached_keys(), keys);
    EXPECT_TRUE(engine_->take_events().empty());
    return false;
  }
  copy_blocks();
  running.request.num_computed_tokens = computed + count;
  running.request.status = RequestStatus::running;
  if (local < computed) write(running, local, computed);
  write(running, computed, computed + count);
  return true;
}

void RandomEngine::start_request() {
  const bool resume = !preempted_.empty() && chance(50);
  Running running = resume ? std::move(preempted_.back()) : engine_.start(random_prompt());
  if (resume) preempted_.pop_back();
  const PrefixHit hit = engine_->get_computed_blocks(running.request);
  check_hit(running, hit);
  running.request.shared_prefix_boundary = hit.shared_prefix_boundary;
  AllocateSlots arguments;
  arguments.num_new_computed_tokens = hit.num_computed_tokens;
  arguments.new_computed_blocks = &hit.blocks;
  const std::int64_t unit = engine_->options().scheduler_block_size;
  const std::int64_t beyond = (running.request.num_tokens() - 1 - hit.num_computed_tokens) / unit;
  if (hit.num_computed_tokens % unit == 0 && beyond > 0 && chance(25)) {
    arguments.num_external_computed_tokens = unit * (1 + pick(beyond));
  }
  running.request.num_computed_tokens = hit.num_computed_tokens + arguments.num_external_computed_tokens;
  const std::int64_t count = chunk_end(running) - running.request.num_computed_tokens;
  running.request.num_computed_tokens = 0;
  if (run(running, count, arguments)) {
    running_.push_back(std::move(running));
  } else if (resume) {
    preempted_.push_back(std::move(running));
  }
}

void RandomEngine::advance(std::size_t index) {
  Running& running = running_[index];
  if (running.request.num_computed_tokens == running.request.num_tokens()) {
    const TokenId next = 1000 * pick(3) + running.request.num_tokens();
    running.request.append_tokens(std::span(&next, 1));
  }
  const std::int64_t end = chunk_end(running);
  if (!run(running, end - running.request.num_computed_tokens, {})) end_request(index, true);
}

void RandomEngine::end_request(std::size_t index, bool preempt) {
  Running running = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  if (chance(50)) {
    engine_->free(running.sequence);
  } else {
    std::vector<BlockId> blocks = engine_->pop_blocks_for_free(running.sequence);
    std::reverse(blocks.begin(), blocks.end());
    engine_.pool().free_blocks(blocks);
  }
  if (!preempt) return;
  running.request.num_computed_tokens = 0;
  ++running.request.num_preemptions;
  running.request.status = RequestStatus::preempted;
  preempted_.push_back(std::move(running));
}

void RandomEngine::evict_some() {
  std::vector<BlockId> blocks;
  for (std::int64_t i = 1 + pick(4); i > 0; --i) {
    blocks.push_back(BlockId{static_cast<std::uint32_t>(1 + pick(engine_.pool().num_blocks() - 1))});
  }
  engine_->evict_blocks(blocks);
}

void RandomEngine::step() {
  engine_->new_step_starts();
  const std::int64_t kind = pick(100);
  if (running_.empty() || kind < 25) {
    start_request();
  } else if (kind < 80) {
    advance(static_cast<std::size_t>(pick(static_cast<std::int64_t>(running_.size()))));
  } else if (kind < 95) {
    end_request(static_cast<std::size_t>(pick(static_cast<std::int64_t>(running_.size()))), chance(30));
  } else {
    evict_some();
  }
  apply_events();
  check_references();
  check_keys();
  engine_.expect_sound();
}

// INV-1, INV-2: references are exactly the table entries; everything else is free, once.
void RandomEngine::check_references() {
  std::map<std::uint32_t, std::uint32_t> references;
  for (const Running& running : running_) {
    for (std::uint32_t g = 0; g < engine_->config().groups.size(); ++g) {
      for (const std::uint32_t block : engine_.table(running, g)) ++references[block];
    }
  }
  references.erase(0);
  for (std::uint32_t block = 1; block < engine_.pool().num_blocks(); ++block) {
    const auto found = references.find(block);
    ASSERT_EQ(engine_.pool().ref_count(BlockId{block}), found == references.end() ? 0 : found->second)
        << description_ << ": block " << block;
  }
  const Ids order = engine_.free_order();
  const std::set<std::uint32_t> distinct(order.begin(), order.end());
  ASSERT_EQ(distinct.size(), order.size());
  ASSERT_EQ(order.size() + references.size(), engine_.pool().num_blocks() - 1U) << description_;
  ASSERT_EQ(order.size(), engine_.free_blocks());
}

void RandomEngine::apply_events() {
  for (const KVEvent& event : engine_->take_events()) {
    if (const auto* stored = std::get_if<BlockStoredEvent>(&event)) {
      for (const BlockHash& hash : stored->block_hashes) ++announced_[{hash, GroupId{*stored->group_idx}}];
    } else if (const auto* removed = std::get_if<BlockRemovedEvent>(&event)) {
      for (const BlockHash& hash : removed->block_hashes) {
        const auto known = announced_.find({hash, GroupId{*removed->group_idx}});
        ASSERT_NE(known, announced_.end()) << description_ << ": removed what was never stored";
        if (--known->second == 0) announced_.erase(known);
      }
    } else {
      announced_.clear();
    }
  }
}

// INV-3, INV-5: the events tell exactly what can be found.
void RandomEngine::check_keys() {
  ASSERT_EQ(engine_.pool().num_cached_keys(), announced_.size()) << description_;
  for (const auto& [key, copies] : announced_) {
    const auto block = engine_.pool().find(key);
    ASSERT_TRUE(block.has_value()) << description_;
    ASSERT_TRUE(engine_.pool().has_key(block->id, key)) << description_;
  }
}

void RandomEngine::finish() {
  while (!running_.empty()) end_request(0, false);
  preempted_.clear();
  apply_events();
  check_references();
  check_keys();
  ASSERT_EQ(engine_.free_blocks(), engine_.pool().num_blocks() - 1U);
  ASSERT_TRUE(engine_->reset_prefix_cache());
  ASSERT_EQ(engine_.pool().num_cached_keys(), 0U);
}

}  // namespace kvpool::test
