"""All groups together, and the operations that an op script knows."""
from hashing import Request, digest
from managers import Chunked, Cross, Full, Window, cdiv
from pool import Pool
from state_manager import Mamba

CLASSES = {"full_attention": Full, "mla": Full, "sliding_window": Window, "chunked_local_attention": Chunked,
           "mamba": Mamba, "cross_attention": Cross}
KINDS = {"mla": "mla_attention"}


class Cache:
    def __init__(self, config):
        self.config = config
        self.caching = config["enable_caching"]
        self.hb, self.sb, self.dcp = (config[k] for k in ("hash_block_size", "scheduler_block_size", "dcp_world_size"))
        self.longest = config["max_model_len"]
        self.pool = Pool(config["num_blocks"], self.hb, self.caching, config["events"], config["free_order"])
        self.groups = config["groups"]
        self.managers = [CLASSES[g["type"]](self.pool, g, i, config) for i, g in enumerate(self.groups)]
        self.root = digest(config["hash_seed"]) if self.caching else None
        self.requests, self.lookups = {}, {}
        self.final = max(0, config["num_prefill_lookahead"] - 1)
        self.watermark = int(config["watermark"] * config["num_blocks"])
        flagged = {i for i, g in enumerate(self.groups) if g.get("is_eagle_group")}
        eagle = flagged or (set(range(len(self.groups))) if config["use_eagle"] else set())
        self.hybrid = len(self.groups) > 1
        if self.hybrid:
            self.merge_specs(eagle)
        else:
            self.managers[0].eagle = 0 in eagle

    def merge_specs(self, eagle):
        """Groups of equal spec are searched jointly, full attention first."""
        merged = []
        for i, manager in enumerate(self.managers):
            for entry in merged:
                if self.managers[entry["ids"][0]].spec == manager.spec:
                    entry["ids"].append(i)
                    break
            else:
                merged.append({"ids": [i]})
        merged.sort(key=lambda entry: not self.managers[entry["ids"][0]].full)
        for entry in merged:
            entry["eagle"] = any(i in eagle for i in entry["ids"])
            for i in entry["ids"]:
                self.managers[i].eagle = entry["eagle"]
        self.specs = merged
        wants = any(m.state and m.align_mode and (m.bs > self.hb or (self.dcp > 1 and m.bs >= self.hb))
                    for m in self.managers)
        self.partial_hits = wants and all(m.fine or m.bs == self.hb for m in self.managers)

    # --- look-up ------------------------------------------------------------------------------------------

    def find(self, request):
        longest = len(request.tokens) - 1
        if not self.caching or request.skip_reading:
            return [[] for _ in self.groups], 0, 0
        if not self.hybrid:
            manager = self.managers[0]
            lists, hit = manager.find(request.hashes, longest, [0], manager.eagle, manager.bs)
            return lists, hit, 0
        return self.fixed_point(request.hashes, longest)

    def fixed_point(self, hashes, longest):
        align = self.hb if self.partial_hits else self.sb
        lists, lengths, dropped = [[] for _ in self.groups], {}, set()
        simple = len(self.specs) == 2 and self.managers[self.specs[0]["ids"][0]].full
        limit, best = longest, 0
        while True:
            current = limit
            for i, entry in enumerate(self.specs):
                first = self.managers[entry["ids"][0]]
                if first.full and i in lengths:
                    current = min(current, lengths[i])
                    continue
                drop = entry["eagle"] and i not in dropped
                probe = current
                if drop and not first.state:
                    fine = self.partial_hits and first.fine and first.bs > self.hb
                    probe = min(current + (self.hb if fine else first.bs), longest)
                found, length = first.find(hashes, probe, entry["ids"], drop, align)
                if drop:
                    dropped.add(i)
                elif length < current:
                    dropped.clear()
                current = lengths[i] = length
                for g, blocks in zip(entry["ids"], found):
                    lists[g] = blocks
                best = max(best, current)
            if current >= limit:
                break
            limit = current
            if simple:
                break
        for g, manager in enumerate(self.managers):
            if manager.full:
                lists[g] = lists[g][:cdiv(limit, manager.bs)]
        return lists, limit, best - limit

    # --- allocation ---------------------------------------------------------------------------------------

    def demand(self, name, tokens, hits, encoder, total, local, main, capped):
        count = 0
        for g, manager in enumerate(self.managers):
            if manager.encoder:
                count += manager.need(name, encoder, [], 0, 0, encoder, capped)
            else:
                count += manager.need(name, tokens, hits[g], total, local, main, capped)
        return count

    def allocate(self, request, new, new_computed=0, hits=None, lookahead=0, ext=0, delay=False, encoder=0,
                 must_fit=False, reserved=0, has_scheduled=True):
        name, null_hits = request.name, hits is None or not any(hits)
        hits = hits if not null_hits else [[] for _ in self.groups]
        local = request.computed + new_computed
        total = min(local + ext, self.longest)
        mark = self.watermark if has_scheduled and request.waiting else 0
        if must_fit:
            full = min(len(request.tokens), self.longest)
            if self.demand(name, full, hits, encoder, total, local, full, True) + mark > len(self.pool.free):
                return None
        main = total + new
        slots = min(main + lookahead, self.longest)
        for manager in self.managers:
            manager.remove_skipped(name, max(0, total - request.in_flight))
        need = self.demand(name, slots, hits, encoder, local + ext, local, main, False)
        if need + mark > len(self.pool.free) - reserved:
            return None
        if need + sum(m.unannounced(name, main, local, total) for m in self.managers) > len(self.pool.free):
            return None
        if (not null_hits or ext > 0) and not any(name in m.cached for m in self.managers):
            for g, manager in enumerate(self.managers):
                manager.add_local(name, hits[g], local, ext)
            if ext > 0:
                for manager in self.managers:
                    manager.add_external(name, local, ext)
        fresh = [m.allocate(name, encoder if m.encoder else slots, encoder if m.encoder else main)
                 for m in self.managers]
        if self.caching and not delay:
            self.publish(request, min(total + new, len(request.tokens)))
        if new > 0:
            request.waiting = False
        return fresh

    def publish(self, request, tokens):
        if not self.hybrid:
            self.managers[0].cache(request, max(0, tokens - self.final), tokens)
            return
        def aligned(n):
            return n if self.partial_hits else n // self.sb * self.sb
        for manager in self.managers:
            count = aligned(tokens)
            if manager.eagle and count > 0:
                final = max(0, tokens - self.final)
                count = min(final, aligned(final) + manager.bs)
            manager.cache(request, count, tokens)

    def free(self, request):
        self.lookups.pop(request.name, None)
        for manager in self.managers:
            manager.free(request.name)

    def take_events(self):
        events, self.pool.events = self.pool.events or [], [] if self.pool.events is not None else None
        for event in events:
            if event["type"] == "BlockStored":
                group = self.groups[event["group_idx"]]
                event["kv_cache_spec_kind"] = KINDS.get(group["type"], group["type"])
                if "sliding_window" in group:
                    event["kv_cache_spec_sliding_window"] = group["sliding_window"]
                if event["extra_keys"] is None:
                    del event["extra_keys"]
        return events

    def make_request(self, name, tokens, **options):
        request = Request(name, tokens, self.hb, self.root, **options)
        self.requests[name] = request
        return request
