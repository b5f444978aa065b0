// Carries out the operations of an op script on a KVCacheManager and the BlockPool under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "tools/exec/fields.hpp"
#include "tools/exec/script_config.hpp"

namespace kvpool::tools {

/// An operation that must not be carried out; the state is as before.
struct Refusal {
  ErrorCode code;
};

/// What an operation answered: the object of the format, `{"error":CODE}` after a refusal.
struct Answer {
  Json value;
  bool refused = false;
};

/// Operations of different requests may run at the same time; those that touch the pool directly exclude all others.
/// Every operation is validated before it changes anything.
class ScriptMachine {
 public:
  /// Throws InputError (naming the key where the manager does) for a configuration that is refused or not built.
  explicit ScriptMachine(Fields& config);
  ~ScriptMachine();
  ScriptMachine(const ScriptMachine&) = delete;
  ScriptMachine& operator=(const ScriptMachine&) = delete;

  /// Throws InputError for an unknown operation, unknown keys and wrong types.
  [[nodiscard]] Answer execute(Fields& operation);

  /// The pool's own invariants, and that each block is referenced exactly as often as block tables, pending copies and
  /// the script itself account for. Call it alone.
  [[nodiscard]] Status verify();

 private:
  struct Entry {
    Entry(Request request_in, Sequence sequence_in)
        : request(std::move(request_in)), sequence(std::move(sequence_in)) {}
    std::mutex mutex;  ///< scripts may name one request in two lanes
    Request request;
    Sequence sequence;
    std::optional<PrefixHit> hit;  ///< of the latest look-up; none since creation, preemption or free
    bool finished = false;
  };
  /// An entry that stays locked while the operation runs.
  struct Locked {
    std::shared_ptr<Entry> entry;
    std::unique_lock<std::mutex> lock;
    Entry* operator->() const { return entry.get(); }
    Entry& operator*() const { return *entry; }
  };
  struct Operation;
  static const Operation* find_operation(std::string_view name);

  // request_ops.cpp
  Json new_request(Fields& fields);
  Json append_tokens(Fields& fields);
  Json set_computed(Fields& fields);
  Json free_request(Fields& fields);
  Json preempt(Fields& fields);
  Json finish(Fields& fields);
  Json block_hashes(Fields& fields);
  [[nodiscard]] RequestOptions read_request(Fields& fields) const;
  static Json describe(const Request& request);

  // slot_ops.cpp
  Json get_computed_blocks(Fields& fields);
  Json allocate_slots(Fields& fields);
  Json cache_blocks(Fields& fields);
  Json get_block_ids(Fields& fields);
  Json get_num_common_prefix_blocks(Fields& fields);
  Json remove_skipped_blocks(Fields& fields);
  Json new_step(Fields& fields);
  void check_arguments(const Entry& entry, const AllocateSlots& arguments, bool use_computed) const;

  // pool_ops.cpp
  Json evict_blocks(Fields& fields);
  Json reset_prefix_cache(Fields& fields);
  Json usage(Fields& fields);
  Json free_queue(Fields& fields);
  Json block(Fields& fields);
  Json cached(Fields& fields);
  Json take_events(Fields& fields);
  Json take_block_copies(Fields& fields);
  Json pool_get(Fields& fields);
  Json pool_touch(Fields& fields);
  Json pool_free(Fields& fields);
  [[nodiscard]] std::vector<BlockId> read_blocks(Fields& fields, std::string_view name) const;

  [[nodiscard]] Locked find_request(const std::string& id);
  [[nodiscard]] std::int64_t live_token_room() const;
  void drain_copies();

  ScriptConfig config_;
  std::shared_ptr<const RequestHashing> hashing_;  ///< empty with caching off: requests carry no hashes
  std::unique_ptr<KVCacheManager> manager_;        ///< before requests_: their sequences must not outlive it
  std::shared_mutex whole_pool_;                   ///< shared: one request; exclusive: the pool as a whole
  std::mutex requests_mutex_;
  std::unordered_map<std::string, std::shared_ptr<Entry>> requests_;
  std::atomic<std::int64_t> live_tokens_{0};
  std::vector<std::int64_t> script_references_;  ///< per block: references that the script took minus those it gave
};

}  // namespace kvpool::tools
