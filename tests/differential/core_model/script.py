"""Operations of an op script on the model. Refusals are not modelled: scripts for the model break no rule."""
from cache import Cache

DEFAULTS = {"use_eagle": False, "num_prefill_lookahead": 0, "watermark": 0.0, "dcp_world_size": 1, "events": False,
            "retention_interval": None}


def expand(tokens):
    result = []
    for token in tokens:
        result += [token] if isinstance(token, int) else range(token[0], token[0] + token[1])
    return result


def ids(groups):
    return [[block.id for block in blocks] for blocks in groups]


class Machine:
    def __init__(self, config):
        self.cache = Cache({**DEFAULTS, **config})

    def run(self, op):
        return getattr(self, op["op"])(op)

    def request(self, op):
        return self.cache.requests[op["id"]]

    def new_request(self, op):
        request = self.cache.make_request(
            op["id"], expand(op["tokens"]), lora=op.get("lora"), cache_salt=op.get("cache_salt"),
            mm=op.get("mm", ()), skip_reading=op.get("skip_reading_prefix_cache", False))
        return {"num_tokens": len(request.tokens), "num_block_hashes": len(request.hashes)}

    def append_tokens(self, op):
        request = self.request(op)
        request.append(expand(op["tokens"]))
        return {"num_tokens": len(request.tokens), "num_block_hashes": len(request.hashes)}

    def get_computed_blocks(self, op):
        request = self.request(op)
        blocks, hit, uncached = self.cache.find(request)
        request.boundary = hit + uncached if uncached > 0 else 0
        self.cache.lookups[op["id"]] = blocks
        return {"num_computed_tokens": hit, "block_ids": ids(blocks)}

    def allocate_slots(self, op):
        hits = self.cache.lookups[op["id"]] if op.get("use_computed") else None
        fresh = self.cache.allocate(
            self.request(op), op["num_new_tokens"], op.get("num_new_computed_tokens", 0), hits,
            op.get("num_lookahead_tokens", 0), op.get("num_external_computed_tokens", 0),
            op.get("delay_cache_blocks", False), op.get("num_encoder_tokens", 0),
            op.get("full_sequence_must_fit", False), op.get("reserved_blocks", 0), op.get("has_scheduled_reqs", True))
        return {"new_block_ids": None if fresh is None else ids(fresh)}

    def set_computed(self, op):
        request = self.request(op)
        request.computed, request.in_flight = op["num_computed_tokens"], op.get("num_in_flight_tokens", 0)
        return {}

    def cache_blocks(self, op):
        if self.cache.caching:
            self.cache.publish(self.request(op), op["num_computed_tokens"])
        return {}

    def free(self, op):
        self.cache.free(self.request(op))
        return {}

    def preempt(self, op):
        self.free(op)
        request = self.request(op)
        request.computed, request.waiting = 0, True
        return {}

    def finish(self, op):
        self.free(op)
        del self.cache.requests[op["id"]]
        return {}

    def get_block_ids(self, op):
        return {"block_ids": ids(m.table(op["id"]) for m in self.cache.managers)}

    def block_hashes(self, op):
        return {"block_hashes": [h.hex() for h in self.request(op).hashes]}

    def get_num_common_prefix_blocks(self, op):
        if not self.cache.caching:
            return {"num_blocks": [0] * len(self.cache.managers)}
        return {"num_blocks": [m.common_prefix(op["id"]) for m in self.cache.managers]}

    def remove_skipped_blocks(self, op):
        for manager in self.cache.managers:
            manager.remove_skipped(op["id"], op["num_computed_tokens"])
        return {}

    def new_step(self, _op):
        for manager in self.cache.managers:
            manager.new_step()
        return {}

    def evict_blocks(self, op):
        for number in op["ids"]:
            self.cache.pool.evict(self.cache.pool.blocks[number])
        return {}

    def reset_prefix_cache(self, _op):
        return {"ok": self.cache.pool.reset()}

    def usage(self, _op):
        return {"num_free_blocks": len(self.cache.pool.free), "usage": self.cache.pool.usage()}

    def free_queue(self, _op):
        return {"block_ids": [block.id for block in self.cache.pool.free]}

    def block(self, op):
        block = self.cache.pool.blocks[op["block_id"]]
        key = None if block.key is None else block.key[0].hex() + block.key[1].to_bytes(4, "big").hex()
        return {"ref_cnt": block.ref, "hash": key}

    def cached(self, op):
        block = self.cache.pool.find(bytes.fromhex(op["hash"]), op["group"])
        return {"block_id": None if block is None else block.id}

    def take_events(self, _op):
        return {"events": self.cache.take_events()}

    def take_block_copies(self, _op):
        copies = [list(copy) for m in self.cache.managers for copy in m.copies]
        for manager in self.cache.managers:
            manager.copies = []
        return {"copies": copies}

    def pool_get(self, op):
        return {"block_ids": [block.id for block in self.cache.pool.get(op["n"])]}

    def pool_touch(self, op):
        self.cache.pool.touch([self.cache.pool.blocks[i] for i in op["block_ids"]])
        return {}

    def pool_free(self, op):
        self.cache.pool.give_back([self.cache.pool.blocks[i] for i in op["block_ids"]])
        return {}
