#include "tools/launch/step/step_message.hpp"

#include <fmt/format.h>

#include "tools/launch/step/byte_codec.hpp"

namespace kvpool::launch {
namespace {

constexpr std::uint32_t kMagic = 0x5453564bU;  // "KVST"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint32_t kMaxGroups = 1024;
constexpr std::size_t kChecksumBytes = 8;

/// FNV-1a over 8-byte words: catches truncation and stray writes, no defence against an attacker.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word = (word << 8U) | static_cast<std::uint64_t>(bytes[i]);
    if (i % 8 == 7 || i + 1 == bytes.size()) {
      hash = (hash ^ word) * 0x100000001b3ULL;
      hash ^= hash >> 29U;
      word = 0;
    }
  }
  return hash;
}

void put_table(ByteWriter& out, const TableUpdate& update) {
  out.put(update.length);
  out.put(static_cast<std::uint32_t>(update.runs.size()));
  for (const TableRun& run : update.runs) {
    out.put(run.first);
    out.put(static_cast<std::uint32_t>(run.blocks.size()));
    for (const std::uint32_t block : run.blocks) out.put(block);
  }
}

TableUpdate get_table(ByteReader& in) {
  TableUpdate update;
  update.length = in.get<std::uint32_t>("table length");
  const std::size_t runs = in.count(8, "table runs");
  for (std::size_t i = 0; i < runs && in.ok(); ++i) {
    TableRun run;
    run.first = in.get<std::uint32_t>("run start");
    run.blocks.resize(in.count(4, "run blocks"));
    for (std::uint32_t& block : run.blocks) block = in.get<std::uint32_t>("block id");
    if (in.ok() && std::uint64_t{run.first} + run.blocks.size() > update.length) {
      in.fail("run",
              fmt::format("entries {}..{} of a table of {}", run.first, run.first + run.blocks.size(), update.length));
    }
    update.runs.push_back(std::move(run));
  }
  return update;
}

void put_sequence(ByteWriter& out, const StepSequence& sequence) {
  out.put(sequence.request);
  out.put(sequence.num_computed);
  out.put(sequence.num_outputs);
  out.put(static_cast<std::uint32_t>(sequence.tokens.size()));
  for (const TokenId token : sequence.tokens) out.put(token);
  for (const TableUpdate& update : sequence.tables) put_table(out, update);
  for (const std::vector<std::int64_t>& slots : sequence.slots) {
    for (const std::int64_t slot : slots) out.put(slot);
  }
}

StepSequence get_sequence(ByteReader& in, std::uint32_t groups) {
  StepSequence sequence;
  sequence.request = in.get<std::uint64_t>("request");
  sequence.num_computed = in.get<std::uint32_t>("computed tokens");
  sequence.num_outputs = in.get<std::uint32_t>("outputs");
  sequence.tokens.resize(in.count(sizeof(TokenId), "tokens"));
  if (in.ok() && sequence.tokens.empty()) in.fail("tokens", "a sequence without tokens");
  if (sequence.num_outputs > sequence.tokens.size()) {
    in.fail("outputs", fmt::format("{} of {} tokens", sequence.num_outputs, sequence.tokens.size()));
  }
  for (TokenId& token : sequence.tokens) token = in.get<TokenId>("token");
  for (std::uint32_t g = 0; g < groups && in.ok(); ++g) sequence.tables.push_back(get_table(in));
  for (std::uint32_t g = 0; g < groups && in.ok(); ++g) {
    if (sequence.tokens.size() > in.remaining() / sizeof(std::int64_t)) {
      in.fail("slots", fmt::format("{} slots, {} bytes are left", sequence.tokens.size(), in.remaining()));
      break;
    }
    std::vector<std::int64_t> slots(sequence.tokens.size());
    for (std::int64_t& slot : slots) slot = in.get<std::int64_t>("slot");
    sequence.slots.push_back(std::move(slots));
  }
  return sequence;
}

void get_header(ByteReader& in, StepMessage& message) {
  if (in.get<std::uint32_t>("magic") != kMagic) in.fail("magic", "not a step message");
  const auto version = in.get<std::uint16_t>("version");
  if (version != kVersion) in.fail("version", fmt::format("{}, this program speaks {}", version, kVersion));
  message.step = in.get<std::uint64_t>("step");
  const auto kind = in.get<std::uint8_t>("kind");
  if (kind > static_cast<std::uint8_t>(StepKind::compare)) in.fail("kind", fmt::format("{} is unknown", kind));
  message.kind = static_cast<StepKind>(kind);
  message.num_groups = in.get<std::uint32_t>("groups");
  if (message.num_groups > kMaxGroups) {
    in.fail("groups", fmt::format("{}, at most {}", message.num_groups, kMaxGroups));
  }
}

}  // namespace

std::int64_t StepMessage::num_tokens() const noexcept {
  std::int64_t tokens = 0;
  for (const StepSequence& sequence : sequences) tokens += static_cast<std::int64_t>(sequence.tokens.size());
  return tokens;
}

std::vector<std::byte> encode(const StepMessage& message) {
  ByteWriter out;
  out.reserve(64 + static_cast<std::size_t>(message.num_tokens()) * 20 + message.sequences.size() * 64);
  out.put(kMagic);
  out.put(kVersion);
  out.put(message.step);
  out.put(static_cast<std::uint8_t>(message.kind));
  out.put(message.num_groups);
  out.put(static_cast<std::uint32_t>(message.removed.size()));
  for (const std::uint64_t request : message.removed) out.put(request);
  out.put(static_cast<std::uint32_t>(message.copies.size()));
  for (const PageCopy& copy : message.copies) {
    out.put(copy.source);
    out.put(copy.target);
  }
  out.put(static_cast<std::uint32_t>(message.sequences.size()));
  for (const StepSequence& sequence : message.sequences) put_sequence(out, sequence);
  out.put(checksum(out.bytes()));
  return out.take();
}

Result<StepMessage> decode_step(std::span<const std::byte> bytes) {
  const auto refuse = [](const std::string& problem) {
    return Result<StepMessage>(ErrorCode::bad_input, "step message: " + problem);
  };
  if (bytes.size() < kChecksumBytes) return refuse(fmt::format("{} bytes are too few", bytes.size()));
  ByteReader sum(bytes.last(kChecksumBytes));
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  StepMessage message;
  ByteReader in(body);
  get_header(in, message);
  if (in.ok() && sum.get<std::uint64_t>("checksum") != checksum(body)) in.fail("checksum", "does not fit the bytes");
  message.removed.resize(in.count(8, "removed"));
  for (std::uint64_t& request : message.removed) request = in.get<std::uint64_t>("removed request");
  message.copies.resize(in.count(8, "copies"));
  for (PageCopy& copy : message.copies) {
    copy.source = in.get<std::uint32_t>("copy source");
    copy.target = in.get<std::uint32_t>("copy target");
  }
  const std::size_t sequences = in.count(20, "sequences");
  for (std::size_t i = 0; i < sequences && in.ok(); ++i) {
    message.sequences.push_back(get_sequence(in, message.num_groups));
  }
  if (in.ok() && in.remaining() != 0) in.fail("end", fmt::format("{} bytes too many", in.remaining()));
  if (!in.ok()) return refuse(in.problem());
  return message;
}

}  // namespace kvpool::launch
