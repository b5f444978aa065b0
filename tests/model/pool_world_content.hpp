// What threads of a model case do with content: look-up, publication, eviction, moves.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/model/pool_world.hpp"

namespace kvpool::model {

inline World::Hashes World::hashes_of(const Names& names) {
  Hashes hashes;
  for (const std::uint32_t name : names) hashes.push_back(model_key(name).hash);
  return hashes;
}

inline void World::pin_prefix(const Names& names, Holding& holding) {
  const Hashes hashes = hashes_of(names);
  std::vector<BlockHandle> found(names.size());
  Blocks blocks;
  std::uint32_t units_beside = 0;  // held at one time for blocks that were found and not reached
  Call call(*this);
  for (BlockHandle refused{}; blocks.size() < names.size();) {
    const HashChain rest{std::span(hashes).subspan(blocks.size())};
    const std::size_t length = pool.find_prefix(rest, GroupId{0}, found);
    if (length == 0) break;
    std::uint32_t units = 0;
    bool covered = true;
    for (std::size_t i = 0; i < length && covered; ++i) {
      if (pool.ref_count(found[i].id) > 0) continue;
      covered = pool.try_reserve(1);
      units += covered ? 1U : 0U;
    }
    const std::size_t pinned = pool.pin_prefix(std::span(found).first(length), rest, GroupId{0}, units);
    pool.give_back(units);
    for (std::size_t i = 0; i < pinned; ++i) blocks.push_back(found[i].id);
    if (pinned == length) continue;
    units_beside = std::max(units_beside, static_cast<std::uint32_t>(length - pinned) - 1);
    if (pinned == 0 && !covered && found[0] == refused) break;  // still there and not to be had: no capacity
    refused = found[pinned];
  }
  call.returns();
  const bool all = blocks.size() == names.size();
  note_call(call, {stress::CallKind::pin_prefix, all, 0, names, 0}, blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) note_pin(call, blocks[i], names[i], holding);
  if (!all) history.misses.push_back({names[blocks.size()], thread(), call.invoked, call.returned});
  withhold(units_beside, call.invoked, call.returned, kNoFence);
}

inline void World::look_up(const Names& names) {
  const Hashes hashes = hashes_of(names);
  std::vector<BlockHandle> found(names.size());
  Call call(*this);
  const std::size_t length = pool.find_prefix(HashChain{hashes}, GroupId{0}, found);
  call.returns();
  if (length < names.size()) history.misses.push_back({names[length], thread(), call.invoked, call.returned, true});
}

inline void World::publish(Held& held, std::uint32_t name) {
  if (held.key != 0) return;
  content_[held.block.value()] = name;
  published_.insert(name);
  Call call(*this);
  const bool published = pool.publish(held.block, model_key(name), 4);
  call.returns();
  require(published || skips_duplicates(), "an owner's publish was refused");
  note(call, published ? stress::Action::publish : stress::Action::publish_in_vain, held.block, name);
  note_call(call, {stress::CallKind::publish, published, 0, {name}, 0}, {held.block});
  if (published) held.key = name;
}

inline void World::publish_further(const Held& held, std::uint32_t name) {
  Call call(*this);
  const bool published = pool.publish(held.block, model_key(name), 4);
  call.returns();
  if (published) {
    note(call, stress::Action::publish_further, held.block, name);
  } else if (skips_duplicates()) {
    note(call, stress::Action::publish_in_vain, held.block, name);
  }
}

inline void World::publish_chain(Holding& holding, const Names& names) {
  const Hashes hashes = hashes_of(names);
  Blocks blocks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    blocks.push_back(holding[i].block);
    content_[blocks[i].value()] = names[i];
  }
  Call call(*this);
  const std::size_t published = pool.publish_chain(blocks, HashChain{hashes}, GroupId{0}, 8, 4);
  call.returns();
  require(published == names.size(), "a part of an owner's chain was refused");
  history.chains.push_back({history.actions.size(), names.size()});
  for (std::size_t i = 0; i < names.size(); ++i) {
    holding[i].key = names[i];
    note(call, stress::Action::publish, blocks[i], names[i]);
  }
  note_call(call, {stress::CallKind::publish, true, 0, names, 0}, blocks);
}

inline void World::rewrite(Held& held, std::uint32_t name) {
  take_content(held.block);
  held.key = 0;
  publish_further(held, name);
}

inline void World::take_back(Held& held) {
  take_content(held.block);
  held.key = 0;
}

inline void World::evict(std::uint32_t name) {
  const auto found = pool.find(model_key(name));
  if (found) take_content(found->id);
}

inline void World::evict_several(const Names& names) {
  Blocks blocks;
  for (const std::uint32_t name : names) {
    const auto found = pool.find(model_key(name));
    if (found) blocks.push_back(found->id);
  }
  Call call(*this);
  contest_moves();
  require(pool.evict_blocks(blocks), "a block of the pool was not known to it");
  call.returns();
  --evictions_in_progress_;
  for (const BlockId block : blocks) note(call, stress::Action::evict, block, 0);
  note_call(call, {stress::CallKind::evict, true, 0, {}, 0}, blocks);
}

inline bool World::take_content(BlockId block) {
  Call call(*this);
  contest_moves();
  const bool had_content = pool.unpublish(block);
  call.returns();
  --evictions_in_progress_;
  note(call, stress::Action::unpublish, block, had_content ? 1 : 0);
  note_call(call, {stress::CallKind::unpublish, had_content, 0, {}, 0}, {block});
  return had_content;
}

/// A call begins that ends content.
inline void World::contest_moves() {
  ++evictions_in_progress_;
  for (Move* move : moves_) move->contested = true;
}

inline void World::move_keys(Held& source, Held& target) {
  content_[target.block.value()] = content_[source.block.value()];
  Call call(*this);
  Move move{source.block, target.block};
  move.contested = evictions_in_progress_ > 0 || !moves_.empty();
  for (Move* other : moves_) other->contested = true;
  moves_.push_back(&move);
  const bool moved = pool.move_block_hashes(source.block, target.block);
  call.returns();
  std::erase(moves_, &move);
  if (moved) {
    note(call, stress::Action::publish, target.block, move.key_of_target);
    target.key = move.key_of_target;
    // Nobody watches the rest of a run that leads to a known state: then the key is the one that was expected.
    if (target.key != 0) content_[target.block.value()] = target.key;
    source.key = 0;
    note(call, stress::Action::move_away, source.block, move.key_of_target);
  } else {
    if (move.key_of_target != 0) note(call, stress::Action::publish_in_vain, target.block, move.key_of_target);
    note(call, stress::Action::unpublish, source.block, 0);  // found nothing, or somebody else has ended it
  }
  note_call(call, {stress::CallKind::move, moved, 0, {}, 0}, {source.block, target.block});
}

/// At every moment of a move one of the two blocks answers, and a look-up that nobody disturbs finds the key.
inline void World::check_move(Move& move) const {
  const std::uint32_t at_source = name_of(pool.primary_key(move.source));
  const std::uint32_t at_target = name_of(pool.primary_key(move.target));
  if (at_source != 0) move.key_of_source = at_source;
  if (move.key_of_target == 0) move.key_of_target = at_target;  // a holder may give it another one before it returns
  if (move.contested || move.key_of_source == 0) return;
  require(at_source == move.key_of_source || at_target == move.key_of_source, "a key is on neither block of its move");
  require(pool.find(model_key(move.key_of_source)).has_value(), "a key that is being moved is not found");
}

/// Of equal keys one stays where duplicates are skipped: the one whose publication was answered with yes.
inline void World::check_single_copies() {
  for (const std::uint32_t name : published_) {
    int copies = 0;
    for (std::uint32_t block = 1; block < pool.num_blocks(); ++block) {
      copies += name_of(pool.primary_key(BlockId{block})) == name ? 1 : 0;
    }
    require(copies <= 1, [&] { return "key " + std::to_string(name) + " is on two blocks"; });
    look_up({name});  // the history tells whether it had to be found
  }
}

}  // namespace kvpool::model
