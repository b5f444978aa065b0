// One outcome for all: reports flood from all to all until everybody knows the same.
#include <algorithm>
#include <string>
#include <utility>

#include "multigpu/byte_order.hpp"
#include "multigpu/message_communicator.hpp"

namespace kvpool::multigpu {

namespace {

constexpr std::size_t kMaxMessageBytes = 4000;

Bytes encode_error(const Error& error) {
  Bytes out;
  put(out, static_cast<std::uint8_t>(error.code));
  put(out, error.rank);
  put_text(out, std::string_view(error.message).substr(0, kMaxMessageBytes));
  return out;
}

}  // namespace

Bytes MessageCommunicator::encode_report(const FaultSet& faults) const {
  Bytes out;
  put(out, sequence_);
  faults.encode(out);
  return out;
}

/// The verdict of a rank that failed in operation `sequence` or before it.
std::optional<Error> MessageCommunicator::decided_elsewhere(std::uint64_t sequence) const {
  if (decision_ && decision_->sequence <= sequence) return decision_->error;
  return std::nullopt;
}

/// Ranks that nobody needs to wait for in a flood: they gave up, failed earlier, or are already past it.
bool MessageCommunicator::will_not_report(FrameKind kind, std::uint64_t sequence, int from) const {
  if (aborted_.contains(from)) return true;
  if (kind == FrameKind::failure) return false;
  if (const auto failed = report_of(FrameKind::failure, kFailureSequence, from, 0)) return failed->sequence != sequence;
  return std::any_of(inbox_.lower_bound(Key{sequence + 1, FrameKind{}, 0, 0}), inbox_.end(),
                     [&](const auto& entry) { return std::get<int>(entry.first) == from; });
}

/// Adds what the others know to `faults`; answers a verdict that was found elsewhere meanwhile. Round k
/// ends when everybody was heard, or at `base` + k x slack. O(rounds x world) messages.
std::optional<Error> MessageCommunicator::flood(FrameKind kind, std::uint64_t sequence, FaultSet& faults,
                                                TimePoint base, Duration slack) {
  int& round = kind == FrameKind::agree ? agree_round_ : failure_round_;
  for (round = 1; round <= kFloodRounds; ++round) {
    const FrameHeader header{kind, static_cast<std::uint8_t>(round), sequence};
    const Bytes report = encode_report(faults);
    if (kind == FrameKind::agree) last_report_ = encode_frame(header, rank_, world_, report);
    send_to_all(header, report);
    const TimePoint until = base + round * slack;
    TimePoint patience = transport_->now() + slack;
    while (true) {
      if (auto decided = decided_elsewhere(sequence)) return decided;
      bool complete = true;
      for (int r = 0; r < world_ && complete; ++r) complete = r == rank_ || heard_in(kind, sequence, r, round);
      if (complete) break;
      if (take_arrivals(std::min(until, patience))) continue;
      if (transport_->now() >= until) break;
      nudge(kind, sequence);
      patience = transport_->now() + slack;
    }
    for (int r = 0; r < world_; ++r) {
      if (const auto theirs = report_of(kind, sequence, r, round)) faults.merge(theirs->faults);
    }
  }
  return std::nullopt;
}

bool MessageCommunicator::heard_in(FrameKind kind, std::uint64_t sequence, int from, int round) const {
  return report_of(kind, sequence, from, round) || will_not_report(kind, sequence, from);
}

/// Asks those that are behind, or whose report was lost, to say it again.
void MessageCommunicator::nudge(FrameKind kind, std::uint64_t sequence) {
  if (kind != FrameKind::agree) return;
  for (int r = 0; r < world_; ++r) {
    if (r == rank_ || heard_in(kind, sequence, r, agree_round_)) continue;
    transport_->send(r, encode_frame({FrameKind::nudge, 0, sequence}, rank_, world_, {}));
  }
}

void MessageCommunicator::answer_nudge(std::uint64_t sequence, int from) {
  if (sequence == sequence_ && agree_round_ > 0) {
    transport_->send(from, last_report_);
  } else if (sequence < sequence_) {
    // This rank is past that agreement, which it could only leave with nothing to complain about.
    transport_->send(from, encode_frame({FrameKind::agree, kFloodRounds, sequence}, rank_, world_, encode_report({})));
  }
}

/// The end of a plain collective that cannot be completed: who is alive, what did they see, who is at
/// fault. Ranks that come late are waited for as long as the operation would have waited.
Error MessageCommunicator::fail(const Operation& op, FaultSet faults) {
  const Bytes mine = encode_report(faults);
  send_to_all({FrameKind::failure, 0, kFailureSequence}, mine);
  const TimePoint until = std::max(op.deadline, transport_->now()) + op.slack;
  std::vector<int> absent;
  while (true) {
    if (auto decided = decided_elsewhere(kFailureSequence)) return conclude(op, *decided);
    absent.clear();
    for (int r = 0; r < world_; ++r) {
      if (r != rank_ && !aborted_.contains(r) && !report_of(FrameKind::failure, kFailureSequence, r, 0)) {
        absent.push_back(r);
      }
    }
    if (absent.empty() || !take_arrivals(until)) break;
  }
  for (int r = 0; r < world_; ++r) {
    if (const auto report = report_of(FrameKind::failure, kFailureSequence, r, 0)) faults.merge(report->faults);
  }
  for (const auto& [r, decision] : aborted_) faults.add({FaultKind::aborted, r, r, decision.error.message});
  for (const int r : absent) faults.add({FaultKind::absent, r, rank_, op.name});

  const TimePoint base = std::max(until, transport_->now());
  if (auto decided = flood(FrameKind::failure, kFailureSequence, faults, base, op.slack)) return conclude(op, *decided);
  if (faults.empty()) faults.add({FaultKind::left, rank_, rank_, op.name});
  return conclude(op, faults.verdict());
}

Error MessageCommunicator::conclude(const Operation& op, Error verdict) {
  failure_ = std::move(verdict);
  send_to_all({FrameKind::decided, 0, op.sequence}, encode_error(*failure_));
  transport_->flush(transport_->now() + op.slack);
  transport_->give_up();
  return *failure_;
}

void MessageCommunicator::abort(const Error& reason) noexcept {
  if (failure_) return;
  try {
    FaultSet faults;
    const std::string text = std::string(to_string(reason.code)) + ": " + reason.message;
    faults.add({FaultKind::aborted, rank_, rank_, text});
    failure_ = faults.verdict();
    send_to_all({FrameKind::abort, 0, sequence_}, encode_error({reason.code, text, rank_}));
    transport_->flush(transport_->now() + std::chrono::milliseconds(20));
  } catch (...) {  // out of memory while giving up: the others find out by their deadline
    failure_ = Error{ErrorCode::rank_failed, {}, rank_};
  }
  transport_->give_up();
}

}  // namespace kvpool::multigpu
