"""Random configurations of the families that op scripts know."""
import math


def full(size, kind="full_attention"):
    return {"type": kind, "block_size": size}


def window(size, tokens):
    return {"type": "sliding_window", "block_size": size, "sliding_window": tokens}


def chunked(size, tokens):
    return {"type": "chunked_local_attention", "block_size": size, "attention_chunk_size": tokens}


def mamba(size, mode, spare):
    return {"type": "mamba", "block_size": size, "mamba_cache_mode": mode, "num_speculative_blocks": spare}


def attention_groups(random):
    """Groups without states, and whether every one of them has the alignment's block size."""
    size = random.choice([1, 2, 4, 8, 16])
    w = random.randint(1, 5 * size + 3)
    family = random.randrange(8)
    if family == 0:
        return [full(size, random.choice(["full_attention", "mla"]))]
    if family == 1:
        return [window(size, w)]
    if family == 2:
        return [chunked(size, size * random.randint(1, 4))]
    if family == 3:
        return [full(size), chunked(size, size * random.randint(1, 4))]
    if family == 4:
        return [full(size), window(size, w)]
    if family == 5:
        return [full(size * random.choice([1, 2, 4])), window(size, w), window(2 * size, random.randint(1, 8 * size))]
    if family == 6:
        return [window(size, w), window(2 * size, random.randint(1, 8 * size)), window(size, w)]
    return [full(2 * size), full(2 * size), window(size, w), window(size, w), full(2 * size, "mla")]


def state_groups(random):
    size = random.choice([4, 8, 16])
    spare = random.choice([0, 0, 1, 2, 3])
    family = random.randrange(7)
    if family == 0:
        return [full(size), mamba(size, "all", spare)]
    if family == 1:
        return [mamba(size, "align", spare)]
    if family in (2, 3):
        return [full(size), mamba(size, "align", spare)]
    if family == 4:
        return [full(size), mamba(2 * size, "align", spare)]
    if family == 5:
        return [full(size), mamba(size, "align", spare), window(size // 2, random.randint(1, 4 * size))]
    return [mamba(size, "align", spare), full(size), mamba(size, "align", spare)]


def draw(random):
    groups = state_groups(random) if random.random() < 0.5 else attention_groups(random)
    caching = random.random() > 0.07
    if not caching and random.random() < 0.5:
        groups = random.choice([[full(8), {"type": "cross_attention", "block_size": 4}],
                                [full(4), mamba(64, "none", random.randrange(3))],
                                [{"type": "cross_attention", "block_size": 8}, window(4, 9), full(8)]])
    random.shuffle(groups)
    kinds = {g["type"] for g in groups}
    windows = kinds & {"sliding_window", "chunked_local_attention", "cross_attention"}
    dcp = random.choice([2, 4]) if not windows and random.random() < 0.25 else 1
    sizes = [g["block_size"] * (1 if g["type"] == "mamba" else dcp) for g in groups]
    unit = math.gcd(*sizes)
    scheduler = math.lcm(*sizes)
    align = [g for g in groups if g.get("mamba_cache_mode") == "align"]
    if caching and len(groups) > 1 and align and random.random() < 0.7:
        unit = max(1, unit // random.choice([1, 2, 4]))
    if "mamba" in kinds and not align:
        unit = scheduler
        if any(size != scheduler for size in sizes):
            caching = False
    eagle = caching and "chunked_local_attention" not in kinds and random.random() < 0.35
    if eagle and len(groups) > 1 and random.random() < 0.5:
        random.choice(groups)["is_eagle_group"] = True
    sparse = kinds & {"sliding_window", "mamba"}
    interval = None
    if random.random() < 0.4:
        interval = scheduler * random.randint(0, 4) if sparse else 0
    longest = max(scheduler * 10, 96) + random.randrange(scheduler)
    per_request = sum(-(-longest // size) for size in sizes)
    return {
        "op": "config", "version": 1, "num_blocks": 2 + per_request + random.randrange(2 * per_request + 8),
        "hash_block_size": unit, "scheduler_block_size": scheduler, "max_model_len": longest,
        "enable_caching": caching, "hash_algo": "sha256_cbor", "hash_seed": random.choice(["", "vllm-none-hash", "λ"]),
        "free_order": random.choice(["split", "split", "split", "append"]), "use_eagle": eagle,
        "num_prefill_lookahead": random.randint(0, min(4, scheduler)) if eagle else 0,
        "watermark": random.choice([0.0, 0.0, 0.0, 0.05, 0.2]), "dcp_world_size": dcp,
        "events": random.random() < 0.7, "retention_interval": interval, "groups": groups,
        **({"max_in_flight_tokens": random.randint(1, longest)} if random.random() < 0.5 else {})}
