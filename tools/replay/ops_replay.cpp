#include "tools/replay/ops_replay.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/replay/admitter.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/ops_log_reader.hpp"

namespace kvpool::tools {
namespace {

class OpsMachine {
 public:
  OpsMachine(std::int64_t capacity, std::int64_t block_size)
      : block_size_(static_cast<std::size_t>(block_size)), hasher_(HashAlgorithm::xxhash_cbor, "kvpool replay") {
    options_.num_blocks = static_cast<std::uint32_t>(capacity) + 1;
    options_.num_shards = 1;
    init();
  }

  std::string init() {
    live_.clear();
    pool_ = std::make_unique<BlockPool>(options_);
    admitter_ = std::make_unique<Admitter>(*pool_, static_cast<std::int64_t>(block_size_));
    return "ok";
  }

  std::string admit(std::int64_t id, std::vector<TokenId> tokens) {
    Live request;
    request.tokens = std::move(tokens);
    hash_full_blocks(request);
    const RequestKeys demand{static_cast<std::int64_t>((request.tokens.size() + block_size_ - 1) / block_size_),
                             (request.tokens.size() - 1) / block_size_, request.keys};
    const std::size_t hits = admitter_->look_up(demand);
    const std::uint64_t evicted = pool_->stats().evicted_blocks;
    if (admitter_->take(demand, request.table) != Taken::all) {
      return fmt::format("fail hit {}", hits);
    }
    (void)admitter_->publish(demand, request.table);
    std::string result = fmt::format("ok hit {} evict {} blocks{}", hits, pool_->stats().evicted_blocks - evicted,
                                     numbers(request.table));
    live_.emplace(id, std::move(request));
    return result;
  }

  std::string append(std::int64_t id, TokenId token) {
    Live& request = live_.at(id);
    const std::uint64_t evicted = pool_->stats().evicted_blocks;
    if (request.tokens.size() == request.table.size() * block_size_) {
      BlockId block;
      if (!pool_->get_new_blocks({&block, 1})) {
        return "fail";
      }
      request.table.push_back(block);
    }
    request.tokens.push_back(token);
    const std::size_t published = request.keys.size();
    hash_full_blocks(request);
    if (request.keys.size() > published) {
      (void)pool_->publish(request.table[published], {request.keys[published], GroupId{0}},
                           static_cast<std::int64_t>(request.tokens.size()));
    }
    return fmt::format("ok evict {} blocks{}", pool_->stats().evicted_blocks - evicted, numbers(request.table));
  }

  std::string free(std::int64_t id) {
    admitter_->release(live_.at(id).table);
    live_.erase(id);
    return "ok";
  }

  std::string reset() { return pool_->reset_prefix_cache() ? "ok" : "fail"; }

  [[nodiscard]] bool is_live(std::int64_t id) const { return live_.contains(id); }

  [[nodiscard]] std::string queue() const {
    std::string text;
    for (const BlockId block : pool_->free_order()) {
      text += fmt::format("{}{}{}", text.empty() ? "" : " ", block.value(), pool_->primary_key(block) ? "*" : "");
    }
    return text;
  }

 private:
  struct Live {
    std::vector<TokenId> tokens;
    std::vector<BlockHash> keys;
    std::vector<BlockId> table;
  };

  void hash_full_blocks(Live& request) const {
    const std::span<const TokenId> tokens(request.tokens);
    for (std::size_t end = (request.keys.size() + 1) * block_size_; end <= tokens.size(); end += block_size_) {
      const BlockHash parent = request.keys.empty() ? BlockHash{} : request.keys.back();
      request.keys.push_back(hasher_.hash_unit(parent, tokens.subspan(end - block_size_, block_size_), {}));
    }
  }

  static std::string numbers(const std::vector<BlockId>& blocks) {
    std::string text;
    for (const BlockId block : blocks) {
      text += fmt::format(" {}", block.value());
    }
    return text;
  }

  std::size_t block_size_;
  BlockHasher hasher_;
  BlockPoolOptions options_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Admitter> admitter_;
  std::map<std::int64_t, Live> live_;
};

std::string carry_out(OpsMachine& machine, const LineReader& lines, const OpsLogEntry& entry) {
  const bool needs_live = entry.op == LoggedOp::append || entry.op == LoggedOp::free;
  if (needs_live != machine.is_live(entry.request) && (needs_live || entry.op == LoggedOp::admit)) {
    throw InputError(lines.file_name(), entry.line, "request", needs_live ? "is not live" : "is live already",
                     std::to_string(entry.request));
  }
  switch (entry.op) {
    case LoggedOp::init: return machine.init();
    case LoggedOp::admit: return machine.admit(entry.request, entry.tokens);
    case LoggedOp::append: return machine.append(entry.request, entry.tokens.front());
    case LoggedOp::free: return machine.free(entry.request);
    case LoggedOp::reset: break;
  }
  return machine.reset();
}

}  // namespace

OpsReplayResult replay_ops_log(LineReader& lines, std::string_view first_line) {
  OpsLogReader reader(lines, first_line);
  OpsMachine machine(reader.capacity(), reader.block_size());
  OpsReplayResult result;
  OpsLogEntry entry;
  const auto compare = [&](std::uint64_t line, const char* field, const std::string& expected,
                           const std::string& actual) {
    if (expected != actual && result.mismatches == 0) {
      result.mismatches = 1;
      result.message = fmt::format("{}:{}: {}: expected {}, got {}", lines.file_name(), line, field, expected, actual);
    }
  };
  while (result.mismatches == 0 && reader.next(entry)) {
    if (interrupt_requested()) {
      result.interrupted = true;
      break;
    }
    const std::string answer = carry_out(machine, lines, entry);
    ++result.operations;
    compare(entry.line + 1, "result", entry.result, answer);
    compare(entry.line + 2, "queue", entry.queue, machine.queue());
  }
  return result;
}

}  // namespace kvpool::tools
