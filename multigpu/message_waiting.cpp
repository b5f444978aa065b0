// Arrivals: into which drawer a message goes, and when a waiting operation has seen enough.
#include <algorithm>
#include <string>
#include <utility>

#include "multigpu/byte_order.hpp"
#include "multigpu/message_communicator.hpp"

namespace kvpool::multigpu {

namespace {

constexpr std::size_t kMaxReasonBytes = 4096;

}  // namespace

std::vector<bool> MessageCommunicator::everyone_else() const {
  std::vector<bool> from(static_cast<std::size_t>(world_), true);
  from[static_cast<std::size_t>(rank_)] = false;
  return from;
}

/// Waits for the first message, then takes all that are there.
bool MessageCommunicator::take_arrivals(TimePoint until) {
  auto arrival = transport_->receive(until);
  if (!arrival) return false;
  while (arrival) {
    file(std::move(*arrival));
    arrival = transport_->receive(TimePoint::min());
  }
  return true;
}

void MessageCommunicator::file(Arrival arrival) {
  const int from = arrival.from;
  DecodedFrame frame = decode_frame(arrival.bytes, from, world_);
  if (!frame.header) {
    unreadable_[from] = {sequence_, std::move(frame.defect)};
    return;
  }
  const FrameHeader header = *frame.header;
  if (header.kind == FrameKind::nudge) {
    answer_nudge(header.sequence, from);
    return;
  }
  if (header.kind == FrameKind::abort || header.kind == FrameKind::decided) {
    if (frame.defect.empty()) file_announcement(header, from, frame.payload);
    return;
  }
  if (header.sequence < sequence_) return;
  const bool late_in_agreement =
      header.kind == FrameKind::agree && header.sequence == sequence_ && header.phase < agree_round_;
  const bool late_in_verdict = header.kind == FrameKind::failure && header.phase < failure_round_;
  if (late_in_agreement || late_in_verdict) return;

  const auto [place, is_new] = inbox_.try_emplace(Key{header.sequence, header.kind, header.phase, from});
  if (is_new || !place->second.defect.empty()) place->second = std::move(frame);
}

void MessageCommunicator::file_announcement(const FrameHeader& header, int from, const Bytes& payload) {
  ByteReader reader(payload);
  std::uint8_t code = 0;
  Decision decision{header.sequence, {}};
  const bool read = reader.get(code) && reader.get(decision.error.rank) &&
                    reader.get_text(decision.error.message, kMaxReasonBytes) && reader.finished();
  if (!read || code > static_cast<std::uint8_t>(ErrorCode::internal)) return;
  decision.error.code = static_cast<ErrorCode>(code);
  if (header.kind == FrameKind::abort) {
    aborted_.try_emplace(from, std::move(decision));
  } else if (!decision_ || decision.sequence < decision_->sequence) {
    decision_ = std::move(decision);
  }
}

/// Moves what has come into `into`; true when nothing is missing.
bool MessageCommunicator::take_contributions(const Operation& op, std::uint8_t phase, const std::vector<bool>& from,
                                             Contributions& into) const {
  bool complete = true;
  for (int r = 0; r < world_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (!from[i] || into[i]) continue;
    const auto found = inbox_.find(Key{op.sequence, op.kind, phase, r});
    if (found != inbox_.end() && found->second.defect.empty()) {
      into[i] = found->second.payload;
    } else {
      complete = false;
    }
  }
  return complete;
}

/// Reasons why contributions that are still missing will not come.
FaultSet MessageCommunicator::faults_of_missing(const Operation& op, std::uint8_t phase, const std::vector<bool>& from,
                                                const Contributions& into) const {
  FaultSet faults;
  for (int r = 0; r < world_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (!from[i] || into[i]) continue;
    if (const auto aborted = aborted_.find(r); aborted != aborted_.end() && aborted->second.sequence < op.sequence) {
      faults.add({FaultKind::aborted, r, r, aborted->second.error.message});
    }
    if (const auto bad = unreadable_.find(r); bad != unreadable_.end() && bad->second.sequence == op.sequence) {
      faults.add({FaultKind::garbage, r, rank_, bad->second.defect + " in " + op.name});
    }
    const auto first = inbox_.lower_bound(Key{op.sequence, FrameKind{}, 0, 0});
    const auto last = inbox_.lower_bound(Key{op.sequence + 1, FrameKind{}, 0, 0});
    for (auto it = first; it != last; ++it) {
      const auto& [sequence, kind, its_phase, sender] = it->first;
      if (sender != r) continue;
      if (kind != op.kind) {
        faults.add({FaultKind::garbage, r, rank_, "a message of " + std::string(to_string(kind)) + " in " + op.name});
      } else if (its_phase == phase && !it->second.defect.empty()) {
        faults.add({FaultKind::garbage, r, rank_, it->second.defect + " in " + op.name});
      }
    }
  }
  return faults;
}

FaultSet MessageCommunicator::silent_ranks(const Operation& op, const std::vector<bool>& from,
                                           const Contributions& into) const {
  FaultSet faults;
  for (int r = 0; r < world_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (!from[i] || into[i]) continue;
    if (const auto bad = unreadable_.find(r); bad != unreadable_.end()) {
      // Its contribution came before this operation began and could not be read.
      faults.add({FaultKind::garbage, r, rank_, bad->second.defect + " in " + op.name});
    } else {
      faults.add({FaultKind::silent, r, rank_, op.name});
    }
  }
  return faults;
}

/// The newest sound report of a rank, of phase `min_phase` or later.
std::optional<MessageCommunicator::Report> MessageCommunicator::report_of(FrameKind kind, std::uint64_t sequence,
                                                                          int from, int min_phase) const {
  for (int phase = kFloodRounds; phase >= min_phase; --phase) {
    const auto found = inbox_.find(Key{sequence, kind, static_cast<std::uint8_t>(phase), from});
    if (found == inbox_.end() || !found->second.defect.empty()) continue;
    ByteReader reader(found->second.payload);
    Report report;
    if (!reader.get(report.sequence)) continue;
    auto faults = FaultSet::decode(std::span(found->second.payload).subspan(sizeof(report.sequence)), world_);
    if (!faults) continue;
    report.faults = std::move(*faults);
    return report;
  }
  return std::nullopt;
}

bool MessageCommunicator::failure_announced() const {
  return decision_ || !aborted_.empty() || inbox_.lower_bound(Key{kFailureSequence, FrameKind{}, 0, 0}) != inbox_.end();
}

/// Contributions of a plain collective: nothing when they are complete, the verdict otherwise.
std::optional<Error> MessageCommunicator::collect(const Operation& op, std::uint8_t phase,
                                                  const std::vector<bool>& from, Contributions& into) {
  while (true) {
    if (take_contributions(op, phase, from, into)) return std::nullopt;
    FaultSet faults = faults_of_missing(op, phase, from, into);
    if (!faults.empty() || failure_announced()) return fail(op, std::move(faults));
    if (!take_arrivals(op.deadline)) return fail(op, silent_ranks(op, from, into));
  }
}

/// Contributions of an agreement. False when some are missing; `faults` then says why, or another rank
/// has already decided.
bool MessageCommunicator::gather_for_agreement(const Operation& op, Contributions& into, FaultSet& faults) {
  const std::vector<bool> from = everyone_else();
  while (true) {
    const bool complete = take_contributions(op, 0, from, into);
    if (decided_elsewhere(op.sequence)) return false;
    if (!complete) faults = faults_of_missing(op, 0, from, into);
    for (int r = 0; r < world_; ++r) {
      if (const auto report = report_of(FrameKind::agree, op.sequence, r, 1)) faults.merge(report->faults);
      // A rank that failed in an earlier operation will not come here any more.
      const auto failed = report_of(FrameKind::failure, kFailureSequence, r, 0);
      if (!failed || failed->sequence >= op.sequence) continue;
      faults.merge(failed->faults);
      faults.add({FaultKind::left, r, rank_, op.name});
    }
    if (!faults.empty()) return false;
    if (complete) return true;
    if (!take_arrivals(op.deadline)) {
      faults = silent_ranks(op, from, into);
      return false;
    }
  }
}

}  // namespace kvpool::multigpu
