"""The block pool as lists and dictionaries: one thread, no cleverness."""


def external(key):
    return int.from_bytes(key[-8:], "big")


class Block:
    def __init__(self, number):
        self.id, self.ref, self.key, self.covered = number, 0, None, None


class Pool:
    """`key` is a pair (hash, group)."""

    def __init__(self, count, unit, caching, events, order):
        self.unit, self.caching, self.order = unit, caching, order
        self.blocks = [Block(i) for i in range(count)]
        self.null = self.blocks[0]
        self.free = list(self.blocks[1:])
        self.index = {}        # key -> {id: block}, in order of insertion
        self.secondary = {}    # id -> [key]
        self.events = [] if events else None

    # --- references ---------------------------------------------------------------------------------------

    def get(self, count):
        assert count <= len(self.free)
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            if self.caching:
                self.evict(block)
            assert block.ref == 0
            block.ref = 1
        return taken

    def touch(self, blocks):
        for block in blocks:
            if block is self.null:
                continue
            if block.ref == 0:
                self.free.remove(block)
            block.ref += 1

    def give_back(self, blocks):
        front, back = [], []
        for block in blocks:
            if block is self.null:
                continue
            block.ref -= 1
            assert block.ref >= 0
            if block.ref > 0:
                continue
            if self.order == "split" and (block.key is None or not self.caching):
                front.append(block)
            else:
                back.append(block)
        self.free = front + self.free + back

    def usage(self):
        return 0 if len(self.blocks) == 1 else 1 - len(self.free) / (len(self.blocks) - 1)

    # --- content ------------------------------------------------------------------------------------------

    def find(self, hash_, group):
        holders = self.index.get((hash_, group))
        return next(iter(holders.values())) if holders else None

    def find_all(self, hash_, groups):
        found = [self.find(hash_, group) for group in groups]
        return None if None in found else found

    def remove_all(self, block):
        keys = ([block.key] if block.key else []) + self.secondary.pop(block.id, [])
        gone = []
        for key in keys:
            holders = self.index.get(key, {})
            if holders.pop(block.id, None) is not None:
                gone.append(key)
            if not holders:
                self.index.pop(key, None)
        block.key = block.covered = None
        return gone

    def announce_removed(self, keys):
        if self.events is not None:
            self.events += [{"type": "BlockRemoved", "block_hashes": [external(h)], "medium": "GPU", "group_idx": g}
                            for h, g in keys]

    def evict(self, block):
        self.announce_removed(self.remove_all(block))

    def reset(self):
        if len(self.blocks) - len(self.free) != 1:
            return False
        self.index, self.secondary = {}, {}
        for block in self.blocks:
            block.key = block.covered = None
        if self.events is not None:
            self.events.append({"type": "AllBlocksCleared"})
        return True

    def insert(self, key, block, covered):
        holders = self.index.setdefault(key, {})
        if block.key == key or block.id in holders:
            return
        if block.key is None:
            block.key, block.covered = key, covered
        else:
            self.secondary.setdefault(block.id, []).append(key)
        holders[block.id] = block

    def has(self, block, key):
        return block.id in self.index.get(key, {})

    def move_keys(self, source, target):
        keys = ([source.key] if source.key else []) + self.secondary.pop(source.id, [])
        covered = source.covered
        for key in keys:
            holders = self.index[key]
            # the place in the order of insertion is that of a new entry
            del holders[source.id]
            holders[target.id] = target
        source.key = source.covered = None
        if keys:
            target.key, target.covered = keys[0], covered
            if keys[1:]:
                self.secondary[target.id] = keys[1:]

    def store_event(self, request, group, start, end, size, hashes, parent, extra):
        self.events.append({
            "type": "BlockStored", "block_hashes": [external(h) for h in hashes],
            "parent_block_hash": None if parent is None else external(parent),
            "token_ids": request.tokens[start:end], "block_size": size, "lora_id": None, "medium": "GPU",
            "lora_name": request.lora, "extra_keys": extra or None, "group_idx": group})

    def cache_full(self, request, table, cached, full, size, group, keep):
        if cached >= full:
            return
        units = size // self.unit
        hashes, extra, cursor = [], [], 0
        for i in range(cached, full):
            block = table[i]
            if block is self.null or (keep is not None and i not in keep):
                continue
            hash_ = request.hashes[(i + 1) * units - 1]
            if block.key is not None:
                assert block.covered < (i + 1) * size
                self.announce_removed(self.remove_all(block))
            self.insert((hash_, group), block, (i + 1) * size)
            hashes.append(hash_)
            keys, cursor = request.extra_keys(i * size, (i + 1) * size, cursor)
            extra.append(keys)
        if self.events is not None:
            parent = request.hashes[cached * units - 1] if cached else None
            self.store_event(request, group, cached * size, full * size, size, hashes, parent, extra)

    def cache_partial(self, request, block, tokens, group):
        if block is self.null:
            return None
        unit = tokens // self.unit
        hash_ = request.hashes[unit - 1]
        key = (hash_, group)
        if self.has(block, key):
            return key
        if block.key is not None and block.covered < tokens:
            self.announce_removed(self.remove_all(block))
        self.insert(key, block, tokens)
        if self.events is not None:
            start = tokens - self.unit
            keys, _ = request.extra_keys(start, tokens, 0 if start == 0 else -1)
            parent = request.hashes[unit - 2] if unit > 1 else None
            self.store_event(request, group, start, tokens, self.unit, [hash_], parent, [keys])
        return key
