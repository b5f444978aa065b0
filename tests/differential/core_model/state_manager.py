"""Recurrent state groups, modes "none", "all" and "align"."""
from managers import Base, cdiv


class Mamba(Base):
    state = fine = sparse = True

    def __init__(self, pool, group, number, config):
        super().__init__(pool, group, number, config)
        self.speculative = group["num_speculative_blocks"]
        self.align_mode = group["mamba_cache_mode"] == "align"
        self.this_step = set()
        self.allocated, self.last_state = set(), {}

    def skipped(self, tokens):
        return tokens - 1

    def new_step(self):
        self.this_step.clear()

    def find(self, hashes, longest, ids, _drop, align):
        bs, null = self.bs, self.pool.null
        fine = align < bs and bs % align == 0
        unit = align if fine else bs
        keys = hashes if fine else self.coarse(hashes)
        for u in range(min(longest // unit, len(keys)) - 1, -1, -1):
            if not fine and bs != align and (u + 1) * bs % align:
                continue
            found = self.pool.find_all(keys[u], ids)
            if found is not None:
                return [[null] * (u * unit // bs) + [block] for block in found], (u + 1) * unit
        return [[] for _ in ids], 0

    def need(self, name, tokens, hits, total, local, main, capped):
        if hits and hits[-1].key in self.this_step:
            return len(self.pool.blocks) + 1
        if not self.align_mode:
            return super().need(name, tokens + self.bs * self.speculative, hits, total, local, main, capped)
        partial = bool(hits and local % self.bs) or name in self.partial
        k = cdiv(main, self.bs) + self.speculative - len(hits) - len(self.table(name))
        if partial:
            k = max(k, 0) + 1
        if k > 0:
            k = 1 + partial + (0 if name in self.allocated else self.speculative)
        return k + self.evictable(hits)

    def unannounced(self, name, main, local, total):
        """The state that a load from outside brings: without this block the load could not be taken."""
        if not self.align_mode or name in self.cached or self.table(name) or total <= local:
            return 0
        return 1 if cdiv(main, self.bs) > cdiv(total, self.bs) else 0

    def allocate(self, name, tokens, main):
        if not self.align_mode:
            return super().allocate(name, tokens + self.bs * self.speculative, main)
        table, spare, null = self.tables.setdefault(name, []), self.speculative, self.pool.null
        need, partial, done = cdiv(main, self.bs) + spare, self.partial.get(name), name in self.allocated
        if need <= len(table) and partial is None:
            self.allocated.add(name)
            return []
        before = len(table)
        if done:
            self.last_state[name] = before - 1 - spare
        elif before > 0:
            self.last_state[name] = before - 1
        skip = need - spare - 1
        table += [null] * (skip - len(table))
        if done:
            for k in range(before - spare, before):
                if k >= skip:
                    break
                table.append(table[k])
                table[k] = null
        k = need - len(table)
        if partial is not None:
            k = max(k, 0) + 1
        assert k <= (1 if done else spare + 1) + (1 if partial else 0)
        if partial is not None and not done:
            index, source = self.partial.pop(name)
            fresh = self.pool.get(k)
            target = fresh.pop(0)
            table[index] = target
            self.copies.append((source.id, target.id))
            target.ref += 1
            answer = [target] + table[before:]
        elif partial is not None:
            index, source = self.partial.pop(name)
            fresh = self.pool.get(k)
            target = fresh.pop(0)
            assert table[index] is source
            self.pool.move_keys(source, target)
            self.copies.append((source.id, target.id))
            source.ref += 1
            if target.key is not None:
                self.this_step.add(target.key)
            answer = table[before:]
        else:
            fresh = self.pool.get(max(k, 0))
            answer = table[before:]
        table += fresh
        self.allocated.add(name)
        return answer + fresh

    def remove_skipped(self, name, processed):
        super().remove_skipped(name, processed)
        if not self.align_mode:
            return
        last, table = self.last_state.get(name), self.table(name)
        if last is not None and last < cdiv(processed, self.bs) - 1 and table[last] is not self.pool.null:
            self.pool.give_back([table[last]])
            table[last] = self.pool.null

    def cache(self, request, tokens, reached):
        name = request.name
        before = self.cached.get(name, 0)
        super().cache(request, tokens, reached)
        table = self.table(name)
        # The running block holds the state after `reached` tokens; at an earlier boundary it is gone.
        if (self.align_mode and tokens == reached and self.bs != self.hb and tokens % self.bs and tokens % self.hb == 0
                and tokens == request.prompt // self.hb * self.hb and tokens // self.bs < len(table)
                and table[tokens // self.bs] is not self.pool.null):
            index = tokens // self.bs
            key = self.pool.cache_partial(request, table[index], tokens, self.number)
            if key is not None:
                self.partial[name] = (index, table[index])
                self.cached[name] = index
                self.this_step.add(key)
        for block in table[before:self.cached.get(name, 0)]:
            if block is not self.pool.null and block.key is not None:
                self.this_step.add(block.key)

    def free(self, name):
        self.allocated.discard(name)
        self.last_state.pop(name, None)
        super().free(name)

    def keep(self, start, end, boundaries):
        if self.interval is None:
            return None
        kept = set()
        if self.interval:
            per = self.interval // self.bs
            if per <= 1:
                return None
            kept |= {i for i in range(start, end) if i % per == per - 1}
        kept |= {b // self.sb * self.sb // self.bs - 1 for b in boundaries}
        return kept
