#include "multigpu/fault_set.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "multigpu/byte_order.hpp"

namespace kvpool::multigpu {

namespace {

constexpr std::size_t kMaxDetailBytes = 600;
constexpr std::size_t kMinEncodedFault = 1 + 4 + 4 + 4;

struct Complaint {
  std::set<int> reporters;
  std::string detail;  ///< in the words of the lowest reporter
};

}  // namespace

void FaultSet::add(Fault fault) {
  if (fault.detail.size() > kMaxDetailBytes) fault.detail.resize(kMaxDetailBytes);
  faults_.insert(std::move(fault));
}

bool FaultSet::says(FaultKind kind, int subject) const noexcept {
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const Fault& fault) { return fault.kind == kind && fault.subject == subject; });
}

void FaultSet::encode(Bytes& out) const {
  put(out, static_cast<std::uint32_t>(faults_.size()));
  for (const Fault& fault : faults_) {
    put(out, static_cast<std::uint8_t>(fault.kind));
    put(out, static_cast<std::uint32_t>(fault.subject));
    put(out, static_cast<std::uint32_t>(fault.reporter));
    put_text(out, fault.detail);
  }
}

std::optional<FaultSet> FaultSet::decode(std::span<const std::byte> bytes, int world_size) {
  ByteReader reader(bytes);
  std::uint32_t count = 0;
  if (!reader.get(count) || count > reader.left() / kMinEncodedFault) return std::nullopt;
  const auto world = static_cast<std::uint32_t>(world_size);
  FaultSet set;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint8_t kind = 0;
    std::uint32_t subject = 0;
    std::uint32_t reporter = 0;
    Fault fault;
    const bool read = reader.get(kind) && reader.get(subject) && reader.get(reporter) &&
                      reader.get_text(fault.detail, kMaxDetailBytes);
    const bool known =
        kind >= static_cast<std::uint8_t>(FaultKind::aborted) && kind <= static_cast<std::uint8_t>(FaultKind::left);
    if (!read || !known || subject >= world || reporter >= world) return std::nullopt;
    fault.kind = static_cast<FaultKind>(kind);
    fault.subject = static_cast<int>(subject);
    fault.reporter = static_cast<int>(reporter);
    set.faults_.insert(std::move(fault));
  }
  if (!reader.finished()) return std::nullopt;
  return set;
}

Error FaultSet::verdict() const {
  const FaultKind kind = faults_.begin()->kind;
  std::map<int, Complaint> complaints;
  for (const Fault& fault : faults_) {
    if (fault.kind != kind) break;
    Complaint& complaint = complaints[fault.subject];
    if (complaint.reporters.empty()) complaint.detail = fault.detail;
    complaint.reporters.insert(fault.reporter);
  }
  std::size_t most = 0;
  for (const auto& [subject, complaint] : complaints) most = std::max(most, complaint.reporters.size());
  std::erase_if(complaints, [&](const auto& entry) { return entry.second.reporters.size() < most; });

  std::set<int> culprits;
  for (const auto& [subject, complaint] : complaints) culprits.insert(subject);
  const int first = *culprits.begin();
  const Complaint& complaint = complaints.at(first);
  const std::string who = format_ranks(culprits);
  const std::string seen = " (seen by " + format_ranks(complaint.reporters) + ")";
  switch (kind) {
    case FaultKind::aborted: return {ErrorCode::rank_failed, who + " gave up: " + complaint.detail, first};
    case FaultKind::garbage: return {ErrorCode::bad_input, who + " sent " + complaint.detail + seen, first};
    case FaultKind::left: return {ErrorCode::rank_failed, who + " failed before " + complaint.detail + seen, first};
    case FaultKind::absent:
    case FaultKind::silent: break;
  }
  // Those that took no part in the verdict are named with the operation they are missing from.
  std::string detail = complaint.detail;
  for (const Fault& fault : faults_) {
    if (fault.kind == FaultKind::silent && fault.subject == first) {
      detail = fault.detail;
      break;
    }
  }
  return {ErrorCode::deadline_exceeded, who + " did not answer in " + detail + seen, first};
}

std::string format_ranks(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int from = *it;
    int to = from;
    while (++it != ranks.end() && *it == to + 1) to = *it;
    if (from != *ranks.begin()) text += ", ";
    text += std::to_string(from);
    if (to != from) text += "-" + std::to_string(to);
  }
  return text;
}

}  // namespace kvpool::multigpu
