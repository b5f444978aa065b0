// Every collective out of messages: one implementation for threads, MPI and simulated networks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kvpool/multigpu/communicator.hpp"
#include "multigpu/fault_set.hpp"
#include "multigpu/frame.hpp"
#include "multigpu/transport.hpp"

namespace kvpool::multigpu {

/// All collectives go directly from rank to rank, so a rank that does not hear another knows whom it
/// misses. The verdict after a failure, and the outcome of agree(), are found by flooding: everybody
/// sends what it knows to all, kFloodRounds times. One of these rounds is free of faults when at most
/// kFloodRounds - 1 faults happen in them, and after it all ranks know the same. For this to hold a
/// message of an earlier round than the receiver's is as good as lost and is dropped. A rank that misses a
/// report asks for it again, so that a lost message does not make it late for the next operation.
class MessageCommunicator final : public Communicator {
 public:
  static constexpr int kFloodRounds = 3;

  explicit MessageCommunicator(std::unique_ptr<Transport> transport);

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_; }
  [[nodiscard]] Result<std::vector<Bytes>> agree(std::string_view step, std::span<const std::byte> mine,
                                                 Timeout timeout) override;
  [[nodiscard]] Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, Timeout timeout) override;
  [[nodiscard]] Result<std::vector<Bytes>> gather(std::span<const std::byte> mine, int root, Timeout timeout) override;
  [[nodiscard]] Status broadcast(Bytes& bytes, int root, Timeout timeout) override;
  [[nodiscard]] Status all_reduce_min(std::span<std::int64_t> values, Timeout timeout) override;
  [[nodiscard]] Status all_reduce_sum(std::span<float> values, SumOrder order, Timeout timeout) override;
  [[nodiscard]] Status all_reduce_sum_bf16(std::span<std::uint16_t> values, SumOrder order, Timeout timeout) override;
  [[nodiscard]] Status barrier(Timeout timeout) override;
  void abort(const Error& reason) noexcept override;
  [[nodiscard]] const std::optional<Error>& failure() const noexcept override { return failure_; }

 private:
  /// Operation, kind, phase, sender: what a message is about.
  using Key = std::tuple<std::uint64_t, FrameKind, std::uint8_t, int>;
  using Contributions = std::vector<std::optional<Bytes>>;

  /// One collective in progress on this rank.
  struct Operation {
    FrameKind kind = FrameKind::agree;
    std::uint64_t sequence = 0;
    std::string name;      ///< as in messages: "step 'hello' within 60000 ms"
    Duration slack{};      ///< how much later than this rank another may be in one round of flooding
    Duration patience{};   ///< how long this rank waits for contributions
    TimePoint deadline{};  ///< when that ends
  };

  /// What the messages of a flood carry.
  struct Report {
    std::uint64_t sequence = 0;  ///< operation in which the sender is
    FaultSet faults;
  };

  struct Decision {
    std::uint64_t sequence = 0;  ///< operation in which the sender failed
    Error error;
  };

  struct Unreadable {
    std::uint64_t sequence = 0;  ///< operation during which it came
    std::string defect;
  };

  // message_communicator.cpp: the collectives
  std::optional<Error> begin(Operation& op, FrameKind kind, std::string_view name, Timeout timeout);
  void send_to_all(const FrameHeader& header, std::span<const std::byte> payload);
  Result<std::vector<Bytes>> exchange(const Operation& op, std::span<const std::byte> mine);
  std::optional<Error> refuse_other_lengths(const Operation& op, const std::vector<Bytes>& all,
                                            const std::vector<std::size_t>& lengths);
  template <class T>
  Status all_reduce_sum_of(FrameKind kind, std::span<T> values, Timeout timeout);
  template <class T>
  Status sum_in_slices(const Operation& op, std::span<T> values);

  // message_waiting.cpp: arrivals, and what they mean to a waiting operation
  [[nodiscard]] std::optional<Error> collect(const Operation& op, std::uint8_t phase, const std::vector<bool>& from,
                                             Contributions& into);
  bool gather_for_agreement(const Operation& op, Contributions& into, FaultSet& faults);
  bool take_arrivals(TimePoint until);
  void file(Arrival arrival);
  void file_announcement(const FrameHeader& header, int from, const Bytes& payload);
  bool take_contributions(const Operation& op, std::uint8_t phase, const std::vector<bool>& from,
                          Contributions& into) const;
  FaultSet faults_of_missing(const Operation& op, std::uint8_t phase, const std::vector<bool>& from,
                             const Contributions& into) const;
  FaultSet silent_ranks(const Operation& op, const std::vector<bool>& from, const Contributions& into) const;
  std::optional<Report> report_of(FrameKind kind, std::uint64_t sequence, int from, int min_phase) const;
  bool failure_announced() const;
  std::vector<bool> everyone_else() const;

  // verdict.cpp: one outcome for all
  Error fail(const Operation& op, FaultSet faults);
  std::optional<Error> flood(FrameKind kind, std::uint64_t sequence, FaultSet& faults, TimePoint base, Duration slack);
  bool heard_in(FrameKind kind, std::uint64_t sequence, int from, int round) const;
  bool will_not_report(FrameKind kind, std::uint64_t sequence, int from) const;
  std::optional<Error> decided_elsewhere(std::uint64_t sequence) const;
  Error conclude(const Operation& op, Error verdict);
  Bytes encode_report(const FaultSet& faults) const;
  void nudge(FrameKind kind, std::uint64_t sequence);
  void answer_nudge(std::uint64_t sequence, int from);

  std::unique_ptr<Transport> transport_;
  int rank_;
  int world_;
  std::uint64_t sequence_ = 0;  ///< of the operation in progress or done last
  int agree_round_ = 0;         ///< of the current operation; earlier messages of it are dropped
  int failure_round_ = 0;
  std::map<Key, DecodedFrame> inbox_;
  Bytes last_report_;                     ///< frame of the last report sent in an agreement
  std::map<int, Unreadable> unreadable_;  ///< sender -> its last message that belongs to nothing
  std::map<int, Decision> aborted_;       ///< sender -> its last operation and its reason
  std::optional<Decision> decision_;      ///< of another rank
  std::optional<Error> failure_;
};

/// Sequence of the messages that search for a verdict; later than every operation.
inline constexpr std::uint64_t kFailureSequence = ~std::uint64_t{0};

}  // namespace kvpool::multigpu
