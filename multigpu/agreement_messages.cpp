#include "multigpu/agreement_messages.hpp"

#include <algorithm>

#include "multigpu/byte_order.hpp"

namespace kvpool::multigpu {

namespace {

constexpr std::size_t kMaxMessageBytes = 2000;
constexpr std::size_t kDigestHexDigits = 64;
constexpr std::size_t kMaxLayerName = 512;
constexpr std::uint8_t kOk = 0xff;

void put_status(Bytes& out, const Status& status) {
  put(out, status.ok() ? kOk : static_cast<std::uint8_t>(status.error().code));
  put_text(out,
           status.ok() ? std::string_view{} : std::string_view(status.error().message).substr(0, kMaxMessageBytes));
}

bool get_status(ByteReader& reader, Status& status) {
  std::uint8_t code = 0;
  std::string message;
  if (!reader.get(code) || !reader.get_text(message, kMaxMessageBytes)) return false;
  if (code == kOk) {
    status = {};
    return true;
  }
  if (code > static_cast<std::uint8_t>(ErrorCode::internal)) return false;
  status = {static_cast<ErrorCode>(code), std::move(message)};
  return true;
}

bool get_limits(ByteReader& reader, std::size_t pools, std::vector<std::int64_t>& limits) {
  std::uint32_t count = 0;
  if (!reader.get(count) || count != pools || reader.left() != pools * sizeof(std::int64_t)) return false;
  limits.resize(pools);
  for (std::int64_t& limit : limits) {
    if (!reader.get(limit)) return false;
  }
  return reader.finished();
}

void put_stage(Bytes& out, const std::optional<PipelineStage>& stage) {
  put(out, static_cast<std::uint8_t>(stage ? 1 : 0));
  if (!stage) return;
  put(out, static_cast<std::int32_t>(stage->index));
  put(out, static_cast<std::uint32_t>(stage->layers.size()));
  for (const std::string& layer : stage->layers) put_text(out, std::string_view(layer).substr(0, kMaxLayerName));
}

bool get_stage(ByteReader& reader, std::optional<PipelineStage>& stage) {
  std::uint8_t present = 0;
  if (!reader.get(present) || present > 1) return false;
  if (present == 0) return true;
  std::int32_t index = 0;
  std::uint32_t count = 0;
  // Every name takes at least its length field.
  if (!reader.get(index) || !reader.get(count) || count > reader.left() / sizeof(std::uint32_t)) return false;
  stage.emplace();
  stage->index = index;
  stage->layers.resize(count);
  return std::all_of(stage->layers.begin(), stage->layers.end(),
                     [&reader](std::string& layer) { return reader.get_text(layer, kMaxLayerName); });
}

}  // namespace

Bytes encode(const HelloMessage& hello) {
  Bytes out;
  put(out, hello.protocol_version);
  put(out, hello.world_size);
  put(out, hello.rank);
  put_status(out, hello.profiling);
  put_status(out, hello.local_part);
  put_text(out, hello.layout_digest);
  put_stage(out, hello.stage);
  return out;
}

std::optional<HelloMessage> decode_hello(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  HelloMessage hello;
  if (!reader.get(hello.protocol_version) || !reader.get(hello.world_size) || !reader.get(hello.rank)) {
    return std::nullopt;
  }
  if (hello.protocol_version != kAgreementProtocolVersion) return hello;
  if (!get_status(reader, hello.profiling) || !get_status(reader, hello.local_part)) return std::nullopt;
  if (!reader.get_text(hello.layout_digest, kDigestHexDigits) || hello.layout_digest.size() != kDigestHexDigits) {
    return std::nullopt;
  }
  if (!get_stage(reader, hello.stage) || !reader.finished()) return std::nullopt;
  return hello;
}

Bytes encode_limits(std::span<const std::int64_t> limits) {
  Bytes out;
  put(out, static_cast<std::uint32_t>(limits.size()));
  for (const std::int64_t limit : limits) put(out, limit);
  return out;
}

std::optional<std::vector<std::int64_t>> decode_limits(std::span<const std::byte> bytes, std::size_t pools) {
  ByteReader reader(bytes);
  std::vector<std::int64_t> limits;
  if (!get_limits(reader, pools, limits)) return std::nullopt;
  return limits;
}

Bytes encode(const CommitMessage& commit) {
  Bytes out;
  put_status(out, commit.outcome);
  const Bytes limits = encode_limits(commit.limits);
  out.insert(out.end(), limits.begin(), limits.end());
  return out;
}

std::optional<CommitMessage> decode_commit(std::span<const std::byte> bytes, std::size_t pools) {
  ByteReader reader(bytes);
  CommitMessage commit;
  if (!get_status(reader, commit.outcome) || !get_limits(reader, pools, commit.limits)) return std::nullopt;
  return commit;
}

}  // namespace kvpool::multigpu
