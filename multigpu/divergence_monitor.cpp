#include "kvpool/multigpu/divergence_monitor.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "multigpu/byte_order.hpp"

namespace kvpool {

namespace {

using multigpu::ByteReader;
using multigpu::put;

constexpr std::uint64_t kStretch = 256;  // changes between two marks

std::string change_text(const std::optional<BlockTableChange>& change, bool with_place) {
  if (!change) return "nothing";
  const std::string block = "block " + std::to_string(change->block_id);
  if (!with_place) return block;
  return "sequence " + std::to_string(change->sequence) + " index " + std::to_string(change->index) + " " + block;
}

Error unreadable(std::size_t rank) {
  return {ErrorCode::bad_input, "rank " + std::to_string(rank) + " sent a divergence report that cannot be read",
          static_cast<int>(rank)};
}

/// Marks of one rank, and how many changes it has.
struct Marks {
  std::uint64_t changes = 0;
  std::vector<std::uint64_t> marks;
};

std::optional<Marks> decode_marks(const Bytes& bytes) {
  ByteReader reader(bytes);
  Marks out;
  if (!reader.get(out.changes)) return std::nullopt;
  out.marks.resize(reader.left() / sizeof(std::uint64_t));
  for (auto& mark : out.marks) {
    if (!reader.get(mark)) return std::nullopt;
  }
  if (!reader.finished()) return std::nullopt;
  return out;
}

std::optional<std::vector<BlockTableChange>> decode_changes(const Bytes& bytes) {
  ByteReader reader(bytes);
  std::vector<BlockTableChange> out;
  while (reader.left() > 0) {
    BlockTableChange change;
    if (!reader.get(change.sequence) || !reader.get(change.index) || !reader.get(change.block_id)) return std::nullopt;
    out.push_back(change);
  }
  return out;
}

}  // namespace

std::string DivergenceAlarm::describe() const {
  const std::string who = "rank " + std::to_string(rank);
  const std::string other = "rank " + std::to_string(reference_rank);
  if (!located) return who + " differs from " + other + " beyond the first " + std::to_string(position) + " changes";
  const bool same_place =
      there && reference && there->sequence == reference->sequence && there->index == reference->index;
  return who + ": " + change_text(there, true) + ", " + other + ": " + change_text(reference, !same_place);
}

DivergenceMonitor::DivergenceMonitor(Communicator& communicator, DivergenceOptions options)
    : communicator_(communicator), options_(options) {
  options_.interval_steps = std::max(1U, options_.interval_steps);
}

void DivergenceMonitor::record(const BlockTableChange& change) {
  const std::array<std::uint64_t, 3> words{change.sequence, change.index, static_cast<std::uint64_t>(change.block_id)};
  digest_ = XXH3_64bits_withSeed(words.data(), sizeof(words), digest_);
  ++changes_;
  if (kept_.size() >= options_.max_kept_changes) return;
  kept_.push_back(change);
  if (kept_.size() % kStretch == 0) marks_.push_back(digest_);
}

Result<DivergenceMonitor::StepOutcome> DivergenceMonitor::end_step(bool want_agreement) {
  want_agreement_ = want_agreement_ || want_agreement;
  if (++steps_ < options_.interval_steps) return StepOutcome{};
  return compare();
}

Result<DivergenceMonitor::StepOutcome> DivergenceMonitor::compare_now() {
  if (steps_ == 0) return StepOutcome{};
  return compare();
}

Result<DivergenceMonitor::StepOutcome> DivergenceMonitor::compare() {
  StepOutcome outcome;
  Bytes mine;
  put(mine, digest_);
  put(mine, static_cast<std::uint64_t>(want_agreement_ ? 1 : 0));
  const auto all = communicator_.all_gather(mine, options_.timeout);
  if (!all) return all.error();
  std::vector<std::uint64_t> digests(all->size());
  for (std::size_t r = 0; r < all->size(); ++r) {
    ByteReader reader((*all)[r]);
    std::uint64_t wants = 0;
    if (!reader.get(digests[r]) || !reader.get(wants) || !reader.finished()) return unreadable(r);
    if (wants != 0) outcome.wants_agreement.push_back(static_cast<int>(r));
  }
  outcome.compared = true;
  if (std::adjacent_find(digests.begin(), digests.end(), std::not_equal_to<>()) != digests.end()) {
    auto alarm = locate(digests);
    if (!alarm) return alarm.error();
    outcome.alarm = std::move(*alarm);
  }
  steps_ = 0;
  want_agreement_ = false;
  digest_ = 0;
  changes_ = 0;
  kept_.clear();
  marks_.clear();
  return outcome;
}

/// First the marks say in which stretch the first difference lies, then only that stretch is exchanged.
Result<DivergenceAlarm> DivergenceMonitor::locate(const std::vector<std::uint64_t>& digests) {
  std::size_t reference = 0;
  for (std::size_t r = 1; r < digests.size(); ++r) {
    if (std::count(digests.begin(), digests.end(), digests[r]) >
        std::count(digests.begin(), digests.end(), digests[reference])) {
      reference = r;
    }
  }
  Bytes mine;
  put(mine, changes_);
  for (const std::uint64_t mark : marks_) put(mine, mark);
  const auto all_marks = communicator_.agree("divergence marks", mine, options_.timeout);
  if (!all_marks) return all_marks.error();
  std::vector<Marks> marks;
  for (std::size_t r = 0; r < all_marks->size(); ++r) {
    auto theirs = decode_marks((*all_marks)[r]);
    if (!theirs) return unreadable(r);
    marks.push_back(std::move(*theirs));
  }
  std::size_t stretch = marks[reference].marks.size();
  for (std::size_t r = 0; r < marks.size(); ++r) {
    if (digests[r] == digests[reference]) continue;
    const auto& theirs = marks[r].marks;
    const auto& expected = marks[reference].marks;
    const std::size_t shared = std::min(theirs.size(), expected.size());
    const auto differ =
        std::mismatch(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(shared), expected.begin());
    stretch = std::min(stretch, static_cast<std::size_t>(differ.first - theirs.begin()));
  }

  const std::uint64_t from = stretch * kStretch;
  mine.clear();
  for (std::uint64_t i = from; i < std::min<std::uint64_t>(from + kStretch, kept_.size()); ++i) {
    put(mine, kept_[i].sequence);
    put(mine, kept_[i].index);
    put(mine, kept_[i].block_id);
  }
  const auto all_changes = communicator_.agree("divergence changes", mine, options_.timeout);
  if (!all_changes) return all_changes.error();
  const auto expected = decode_changes((*all_changes)[reference]);
  if (!expected) return unreadable(reference);
  DivergenceAlarm alarm;
  alarm.rank = -1;
  alarm.reference_rank = static_cast<int>(reference);
  alarm.located = false;
  alarm.position = from + expected->size();
  for (std::size_t r = 0; r < digests.size(); ++r) {
    if (digests[r] == digests[reference]) continue;
    const auto theirs = decode_changes((*all_changes)[r]);
    if (!theirs) return unreadable(r);
    if (alarm.rank < 0) alarm.rank = static_cast<int>(r);
    const auto at = [](const std::vector<BlockTableChange>& list, std::size_t i) {
      return i < list.size() ? std::optional(list[i]) : std::nullopt;
    };
    for (std::size_t i = 0; i < std::max(theirs->size(), expected->size()); ++i) {
      if (at(*theirs, i) == at(*expected, i)) continue;
      if (!alarm.located || from + i < alarm.position) {
        alarm = {static_cast<int>(r), static_cast<int>(reference), from + i, true, at(*theirs, i), at(*expected, i)};
      }
      break;
    }
  }
  return alarm;
}

}  // namespace kvpool
