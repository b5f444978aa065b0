#include "multigpu/message_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "multigpu/byte_order.hpp"
#include "multigpu/ordered_sum.hpp"

namespace kvpool::multigpu {

namespace {

/// Up to this size a sum goes to everybody whole (one hop); above it in slices (two hops, less data).
constexpr std::size_t kWholeSumBytes = 32U << 10U;

/// A twentieth of the time-out, within what a scheduler may delay a thread and what a user may wait.
Duration slack_of(Timeout timeout) {
  using std::chrono::milliseconds;
  return std::clamp<Duration>(Duration(timeout) / 20, milliseconds(2), milliseconds(250));
}

template <class T>
std::vector<const T*> pointers_to(const std::vector<Bytes>& parts) {
  std::vector<const T*> out;
  out.reserve(parts.size());
  // Byte vectors come from the allocator, which aligns them for every number.
  for (const Bytes& part : parts) out.push_back(reinterpret_cast<const T*>(part.data()));
  return out;
}

/// What most ranks sent, of several the lowest rank's: every rank names the same ones as those that differ, also the
/// one that differs itself.
std::size_t usual_length(const std::vector<Bytes>& all) {
  std::size_t usual = 0;
  std::ptrdiff_t most = 0;
  for (const Bytes& candidate : all) {
    const auto same = [&](const Bytes& other) { return other.size() == candidate.size(); };
    const std::ptrdiff_t count = std::count_if(all.begin(), all.end(), same);
    if (count > most) {
      most = count;
      usual = candidate.size();
    }
  }
  return usual;
}

}  // namespace

MessageCommunicator::MessageCommunicator(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)), rank_(transport_->rank()), world_(transport_->world_size()) {}

std::optional<Error> MessageCommunicator::begin(Operation& op, FrameKind kind, std::string_view name, Timeout timeout) {
  if (failure_) return failure_;
  ++sequence_;
  agree_round_ = 0;
  inbox_.erase(inbox_.begin(), inbox_.lower_bound(Key{sequence_, FrameKind{}, 0, 0}));
  op.kind = kind;
  op.sequence = sequence_;
  op.name = std::string(name) + " within " + std::to_string(timeout.count()) + " ms";
  op.slack = slack_of(timeout);
  // The end of the time-out belongs to the verdict: one round of reports, the flood, and one to spare.
  op.patience = std::max<Duration>(Duration(timeout) - (kFloodRounds + 2) * op.slack, op.slack);
  op.deadline = transport_->now() + op.patience;
  take_arrivals(transport_->now());
  return std::nullopt;
}

void MessageCommunicator::send_to_all(const FrameHeader& header, std::span<const std::byte> payload) {
  const Bytes frame = encode_frame(header, rank_, world_, payload);
  // Starting with the next rank spreads the load: not everybody sends to rank 0 first.
  for (int i = 1; i < world_; ++i) transport_->send((rank_ + i) % world_, frame);
}

Result<std::vector<Bytes>> MessageCommunicator::agree(std::string_view step, std::span<const std::byte> mine,
                                                      Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, FrameKind::agree, "step '" + std::string(step) + "'", timeout)) return *ended;
  send_to_all({op.kind, 0, op.sequence}, mine);

  Contributions all(static_cast<std::size_t>(world_));
  all[static_cast<std::size_t>(rank_)] = Bytes(mine.begin(), mine.end());
  FaultSet faults;
  if (!gather_for_agreement(op, all, faults)) {
    if (auto decided = decided_elsewhere(op.sequence)) return conclude(op, *decided);
  }
  // With nothing to complain about, another rank may still be waiting for its contributions: it came
  // here at the latest when its own arrived, so it reports at the latest after as much patience.
  const TimePoint now = transport_->now();
  const TimePoint base = faults.empty() ? now + op.patience : std::max(now, op.deadline);
  if (auto decided = flood(FrameKind::agree, op.sequence, faults, base, op.slack)) return conclude(op, *decided);
  if (!faults.empty()) return conclude(op, faults.verdict());

  transport_->flush(op.deadline);
  std::vector<Bytes> out;
  out.reserve(all.size());
  for (auto& contribution : all) out.push_back(std::move(*contribution));
  return out;
}

Result<std::vector<Bytes>> MessageCommunicator::exchange(const Operation& op, std::span<const std::byte> mine) {
  send_to_all({op.kind, 0, op.sequence}, mine);
  Contributions all(static_cast<std::size_t>(world_));
  if (auto failed = collect(op, 0, everyone_else(), all)) return *failed;
  transport_->flush(op.deadline);
  all[static_cast<std::size_t>(rank_)] = Bytes(mine.begin(), mine.end());
  std::vector<Bytes> out;
  out.reserve(all.size());
  for (auto& contribution : all) out.push_back(std::move(*contribution));
  return out;
}

Result<std::vector<Bytes>> MessageCommunicator::all_gather(std::span<const std::byte> mine, Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, FrameKind::all_gather, "all_gather", timeout)) return *ended;
  return exchange(op, mine);
}

Result<std::vector<Bytes>> MessageCommunicator::gather(std::span<const std::byte> mine, int root, Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, FrameKind::gather, "gather", timeout)) return *ended;
  if (root < 0 || root >= world_) return Error{ErrorCode::invalid_argument, "root " + std::to_string(root)};
  if (rank_ != root) {
    if (failure_announced()) return fail(op, {});
    transport_->send(root, encode_frame({op.kind, 0, op.sequence}, rank_, world_, mine));
    transport_->flush(op.deadline);
    return std::vector<Bytes>{};
  }
  Contributions all(static_cast<std::size_t>(world_));
  if (auto failed = collect(op, 0, everyone_else(), all)) return *failed;
  all[static_cast<std::size_t>(rank_)] = Bytes(mine.begin(), mine.end());
  std::vector<Bytes> out;
  for (auto& contribution : all) out.push_back(std::move(*contribution));
  return out;
}

Status MessageCommunicator::broadcast(Bytes& bytes, int root, Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, FrameKind::broadcast, "broadcast", timeout)) return *ended;
  if (root < 0 || root >= world_) return {ErrorCode::invalid_argument, "root " + std::to_string(root)};
  if (rank_ == root) {
    if (failure_announced()) return fail(op, {});
    send_to_all({op.kind, 0, op.sequence}, bytes);
    transport_->flush(op.deadline);
    return {};
  }
  std::vector<bool> from(static_cast<std::size_t>(world_), false);
  from[static_cast<std::size_t>(root)] = true;
  Contributions all(static_cast<std::size_t>(world_));
  if (auto failed = collect(op, 0, from, all)) return *failed;
  bytes = std::move(*all[static_cast<std::size_t>(root)]);
  return {};
}

Status MessageCommunicator::barrier(Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, FrameKind::barrier, "barrier", timeout)) return *ended;
  return exchange(op, {}).status();
}

std::optional<Error> MessageCommunicator::refuse_other_lengths(const Operation& op, const std::vector<Bytes>& all,
                                                               const std::vector<std::size_t>& lengths) {
  FaultSet faults;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].size() == lengths[r]) continue;
    faults.add({FaultKind::garbage, static_cast<int>(r), rank_,
                std::to_string(all[r].size()) + " bytes for " + std::string(to_string(op.kind)) + ", expected " +
                    std::to_string(lengths[r])});
  }
  if (faults.empty()) return std::nullopt;
  return fail(op, std::move(faults));
}

Status MessageCommunicator::all_reduce_min(std::span<std::int64_t> values, Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, FrameKind::all_reduce_min, "all_reduce_min", timeout)) return *ended;
  auto all = exchange(op, std::as_bytes(std::span<const std::int64_t>(values)));
  if (!all) return all.error();
  const std::vector<std::size_t> lengths(all->size(), usual_length(*all));
  if (auto failed = refuse_other_lengths(op, *all, lengths)) return *failed;
  for (const std::int64_t* theirs : pointers_to<std::int64_t>(*all)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::min(values[i], theirs[i]);
  }
  return {};
}

template <class T>
Status MessageCommunicator::all_reduce_sum_of(FrameKind kind, std::span<T> values, Timeout timeout) {
  Operation op;
  if (auto ended = begin(op, kind, to_string(kind), timeout)) return *ended;
  if (values.size_bytes() > kWholeSumBytes && world_ > 2) return sum_in_slices(op, values);
  auto all = exchange(op, std::as_bytes(std::span<const T>(values)));
  if (!all) return all.error();
  const std::vector<std::size_t> lengths(all->size(), usual_length(*all));
  if (auto failed = refuse_other_lengths(op, *all, lengths)) return *failed;
  tree_sum(pointers_to<T>(*all), values.data(), values.size());
  return {};
}

template <class T>
Status MessageCommunicator::sum_in_slices(const Operation& op, std::span<T> values) {
  const auto world = static_cast<std::size_t>(world_);
  const auto me = static_cast<std::size_t>(rank_);
  const auto slice = [&](std::size_t r) {
    const std::size_t from = values.size() * r / world;
    return values.subspan(from, values.size() * (r + 1) / world - from);
  };
  const auto bytes_of_slice = [&](std::size_t r) { return std::as_bytes(std::span<const T>(slice(r))); };

  // Every rank adds up one slice ...
  for (std::size_t i = 1; i < world; ++i) {
    const std::size_t to = (me + i) % world;
    transport_->send(static_cast<int>(to), encode_frame({op.kind, 0, op.sequence}, rank_, world_, bytes_of_slice(to)));
  }
  Contributions arrived(world);
  if (auto failed = collect(op, 0, everyone_else(), arrived)) return *failed;
  std::vector<Bytes> parts(world);
  const auto own = bytes_of_slice(me);
  arrived[me] = Bytes(own.begin(), own.end());
  for (std::size_t r = 0; r < world; ++r) parts[r] = std::move(*arrived[r]);
  if (auto failed = refuse_other_lengths(op, parts, std::vector<std::size_t>(world, usual_length(parts))))
    return *failed;
  tree_sum(pointers_to<T>(parts), slice(me).data(), slice(me).size());

  // ... and hands the result to all.
  send_to_all({op.kind, 1, op.sequence}, bytes_of_slice(me));
  Contributions sums(world);
  if (auto failed = collect(op, 1, everyone_else(), sums)) return *failed;
  transport_->flush(op.deadline);
  std::vector<std::size_t> lengths(world);
  for (std::size_t r = 0; r < world; ++r) {
    lengths[r] = slice(r).size_bytes();
    parts[r] = r == me ? Bytes(own.begin(), own.end()) : std::move(*sums[r]);
  }
  if (auto failed = refuse_other_lengths(op, parts, lengths)) return *failed;
  for (std::size_t r = 0; r < world; ++r) {
    if (r != me && lengths[r] > 0) std::memcpy(slice(r).data(), parts[r].data(), lengths[r]);
  }
  return {};
}

Status MessageCommunicator::all_reduce_sum(std::span<float> values, SumOrder /*order*/, Timeout timeout) {
  return all_reduce_sum_of(FrameKind::all_reduce_sum, values, timeout);
}

Status MessageCommunicator::all_reduce_sum_bf16(std::span<std::uint16_t> values, SumOrder /*order*/, Timeout timeout) {
  return all_reduce_sum_of(FrameKind::all_reduce_sum_bf16, values, timeout);
}

}  // namespace kvpool::multigpu
