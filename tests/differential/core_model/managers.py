"""One class per attention type: what a request of one group finds, needs, publishes and gives back."""


def cdiv(a, b):
    return -(-a // b)


class Base:
    full = state = encoder = fine = windowed = sparse = False

    def __init__(self, pool, group, number, config):
        self.pool, self.number = pool, number
        self.spec = {k: v for k, v in group.items() if k != "is_eagle_group"}
        self.bs = group["block_size"] * (1 if self.state else config["dcp_world_size"])
        self.hb, self.sb = config["hash_block_size"], config["scheduler_block_size"]
        self.interval = config["retention_interval"]
        self.in_flight = config.get("max_in_flight_tokens", config["max_model_len"])
        self.longest = config["max_model_len"]
        self.eagle = False
        self.tables, self.cached, self.partial = {}, {}, {}
        self.copies = []

    def table(self, name):
        return self.tables.get(name, [])

    def coarse(self, hashes):
        step = self.bs // self.hb
        return [hashes[(i + 1) * step - 1] for i in range(len(hashes) // step)]

    def skipped(self, _tokens):
        return 0

    def cap(self):
        return None

    def evictable(self, hits):
        return sum(1 for block in hits if block is not self.pool.null and block.ref == 0)

    # --- allocation ---------------------------------------------------------------------------------------

    def need(self, name, tokens, hits, total, local, _main, capped):
        count = cdiv(tokens, self.bs)
        if capped and self.cap() is not None:
            count = min(count, self.cap())
        have = len(self.table(name))
        if name in self.cached:
            return max(count - have, 0)
        gone = self.skipped(total) // self.bs
        fresh = max(count - max(gone, len(hits) + have), 0)
        copy = 1 if hits and local % self.bs else 0
        return fresh + self.evictable(hits[max(0, gone - have):]) + copy

    def unannounced(self, _name, _main, _local, _total):
        """Blocks that an allocation takes although need() does not count them."""
        return 0

    def add_local(self, name, hits, local, ext):
        assert not self.table(name)
        gone = max(self.skipped(local + ext) // self.bs, 0)
        kept = hits[gone:]
        self.pool.touch(kept)
        self.tables[name] = [self.pool.null] * gone + kept
        self.cached[name] = len(self.tables[name])
        if kept and local % self.bs:
            self.partial[name] = (local // self.bs, kept[-1])
            self.cached[name] = local // self.bs

    def add_external(self, name, local, ext):
        gone = self.skipped(local + ext)
        if (min(local + ext - gone, ext) if gone > 0 else ext) <= 0:
            return
        count = cdiv(local + ext, self.bs) - len(self.tables[name])
        self.tables[name] += self.pool.get(max(count, 0))

    def copy_on_write(self, name):
        index, source = self.partial.pop(name)
        target = self.pool.get(1)[0]
        assert self.tables[name][index] is source
        self.tables[name][index] = target
        self.copies.append((source.id, target.id))
        target.ref += 1
        return target

    def allocate(self, name, tokens, _main):
        table = self.tables.setdefault(name, [])
        fresh = [self.copy_on_write(name)] if name in self.partial else []
        more = self.pool.get(max(cdiv(tokens, self.bs) - len(table), 0))
        table += more
        return fresh + more

    # --- content ------------------------------------------------------------------------------------------

    def keep(self, _start, _end, _boundaries):
        return None

    def cache(self, request, tokens, _reached):
        cached, full = self.cached.get(request.name, 0), tokens // self.bs
        if cached >= full:
            return
        boundaries = [request.prompt - 1] + ([request.boundary] if request.boundary else [])
        keep = self.keep(cached, full, boundaries)
        self.pool.cache_full(request, self.table(request.name), cached, full, self.bs, self.number, keep)
        self.cached[request.name] = full

    # --- giving back --------------------------------------------------------------------------------------

    def remove_skipped(self, name, processed):
        tokens = self.skipped(processed)
        if tokens <= 0:
            return
        table, leaving = self.table(name), []
        for i in range(min(tokens // self.bs, len(table)) - 1, -1, -1):
            if table[i] is self.pool.null:
                break
            leaving.append(table[i])
            table[i] = self.pool.null
        self.pool.give_back(leaving)

    def free(self, name):
        self.partial.pop(name, None)
        self.cached.pop(name, None)
        self.pool.give_back(self.tables.pop(name, [])[::-1])

    def common_prefix(self, _name):
        return 0

    def new_step(self):
        pass


class Full(Base):
    full = fine = True

    def find(self, hashes, longest, ids, drop, align):
        bs, coarse, lists = self.bs, self.coarse(hashes), [[] for _ in ids]
        count = 0
        while count < longest // bs and count < len(coarse):
            found = self.pool.find_all(coarse[count], ids)
            if found is None:
                break
            for blocks, block in zip(lists, found):
                blocks.append(block)
            count += 1
        hit = count * bs
        if align < bs and bs % align == 0:
            units = bs // align
            for u in range(min(count * units + units - 1, longest // align, len(hashes)) - 1, count * units - 1, -1):
                found = self.pool.find_all(hashes[u], ids)
                if found is not None:
                    for blocks, block in zip(lists, found):
                        blocks.append(block)
                    hit = (u + 1) * align
                    break
        if drop and hit > 0:
            hit -= min(align, bs)
        hit -= hit % align
        return [blocks[:cdiv(hit, bs)] for blocks in lists], hit

    def cache(self, request, tokens, reached):
        super().cache(request, tokens, reached)
        boundary = request.prompt // self.hb * self.hb
        if self.bs == self.hb or boundary in (0,) or boundary > tokens or boundary % self.bs == 0:
            return
        table = self.table(request.name)
        if boundary // self.bs < len(table):
            self.pool.cache_partial(request, table[boundary // self.bs], boundary, self.number)

    def common_prefix(self, name):
        count = 0
        for block in self.table(name):
            if block.ref != len(self.tables):
                break
            count += 1
        return count


class Window(Base):
    windowed = sparse = True

    def __init__(self, pool, group, number, config):
        super().__init__(pool, group, number, config)
        self.window = group["sliding_window"]

    def skipped(self, tokens):
        return max(0, tokens - self.window + 1)

    def cap(self):
        return cdiv(min(self.window - 1 + self.in_flight, self.longest), self.bs) + 1

    def run_needed(self, drop):
        return cdiv(self.window - 1, self.bs) + (1 if drop else 0)

    def find(self, hashes, longest, ids, drop, align):
        bs, null = self.bs, self.pool.null
        coarse = self.coarse(hashes)
        count = longest // bs
        entries = [None] * count
        need, run, length = self.run_needed(drop), 0, None
        for i in range(count - 1, -1, -1):
            found = self.pool.find_all(coarse[i], ids)
            if found is None:
                run = 0
                continue
            if run == 0 and bs != align and ((i if drop else i + 1) * bs) % align:
                continue
            entries[i] = found
            run += 1
            if run >= need:
                length = i + run
                break
        if length is None:
            length = run
            while bs != align and length * bs % align:
                length -= 1
        if drop and length:
            length -= 1
            while bs != align and length * bs % align:
                length -= 1
        lists = [[null if found is None else found[k] for found in entries[:length]] for k in range(len(ids))]
        return lists, length * bs

    def keep(self, start, end, boundaries):
        need, shift, align = self.run_needed(self.eagle), 1 if self.eagle else 0, self.sb
        kept = set()
        segment = align if self.interval is None else self.interval
        if segment:
            per = segment // self.bs
            if need >= per:
                return None
            kept |= {i for i in range(start, end) if i >= shift and (i - shift) % per >= per - need}
        if self.interval is not None:
            for b in boundaries:
                e = b // align * align // self.bs + shift
                kept |= set(range(max(start, e - need), min(end, e)))
        return kept


class Chunked(Base):
    windowed = True

    def __init__(self, pool, group, number, config):
        super().__init__(pool, group, number, config)
        self.chunk = group["attention_chunk_size"]

    def skipped(self, tokens):
        return tokens // self.chunk * self.chunk

    def cap(self):
        return cdiv(min(self.chunk + self.in_flight, self.longest), self.bs)

    def find(self, hashes, longest, ids, drop, align):
        assert not drop and align == self.bs
        coarse = self.coarse(hashes)
        start = max(longest, 0) // self.chunk * self.chunk // self.bs
        lists = [[self.pool.null] * start for _ in ids]
        for i in range(start, longest // self.bs):
            found = self.pool.find_all(coarse[i], ids)
            if found is None:
                break
            for blocks, block in zip(lists, found):
                blocks.append(block)
        return lists, len(lists[0]) * self.bs


class Cross(Base):
    encoder = True

    def find(self, *_):
        raise AssertionError("cross attention has no look-up")

    def add_local(self, _name, hits, _local, _ext):
        assert not hits

    def add_external(self, *_):
        pass
