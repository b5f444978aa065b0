"""A small engine that schedules random requests on a random configuration and writes down every answer."""
import json
import random as random_module

import random_config
from script import Machine


class Engine:
    def __init__(self, seed):
        self.random = random_module.Random(seed)
        self.config = random_config.draw(self.random)
        self.machine = Machine(self.config)
        self.lines = [self.config]
        self.running, self.waiting, self.loading = [], [], {}
        self.count, self.debts = 0, []
        self.longest = self.config["max_model_len"]
        self.unit = self.config["scheduler_block_size"]
        states = [g["block_size"] for g in self.config["groups"] if g.get("mamba_cache_mode") == "align"]
        self.state_block = max(states, default=0)
        self.encoder = any(g["type"] == "cross_attention" for g in self.config["groups"])
        self.in_flight = self.random.random() < 0.3
        self.lookahead = self.random.randint(1, 4) if self.config["use_eagle"] else 0
        self.target = {}

    def chance(self, percent):
        return self.random.random() * 100 < percent

    def emit(self, op, **keys):
        line = {"op": op, **keys}
        answer = self.machine.run(line)
        self.lines.append({**line, "expect": json.loads(json.dumps(answer))})
        return answer

    def request(self, name):
        return self.machine.cache.requests[name]

    # --- requests -----------------------------------------------------------------------------------------

    def arrive(self):
        self.count += 1
        name = f"r{self.count}"
        length = self.random.randint(1, max(2, self.longest * 3 // 5))
        tokens, total, base = [], 0, 1000 * self.random.randrange(3)
        while total < length:  # few roots and few branches, so that requests meet
            span = min(self.random.randint(1, 2 * self.unit), length - total)
            tokens.append([base + total, span])
            total += span
            base += self.random.choice([0, 0, 0, 5000])
        extra = {}
        if self.chance(12):
            extra["lora"] = self.random.choice(["ad", "bd"])
        if self.chance(12):
            extra["cache_salt"] = self.random.choice(["s", "t"])
        if self.chance(15) and total > 6:
            offset = self.random.randrange(total - 4)
            extra["mm"] = [{"identifier": self.random.choice(["img", "im2"]), "offset": offset, "length": 3}]
        if self.chance(8):
            extra["skip_reading_prefix_cache"] = True
        self.emit("new_request", id=name, tokens=tokens, **extra)
        self.target[name] = min(self.longest - 8, total + self.random.randrange(2 * self.unit + 4))
        self.waiting.append(name)

    def chunk_end(self, request, computed):
        """Where the next step ends; states are only worth keeping at the ends of blocks and hash units."""
        limit = len(request.tokens)
        end = min(limit, computed + self.random.randint(1, 3 * self.unit))
        if not self.state_block or computed >= request.prompt:
            return end
        last_hash = request.prompt // self.config["hash_block_size"] * self.config["hash_block_size"]
        if computed < last_hash <= end and self.machine.cache.hybrid and self.machine.cache.partial_hits:
            return last_hash
        if end == limit:
            return end
        aligned = end // self.state_block * self.state_block
        return aligned if aligned > computed else min(limit, (computed // self.state_block + 1) * self.state_block)

    def options(self):
        keys = {}
        if self.encoder:
            keys["num_encoder_tokens"] = 21
        if self.lookahead:
            keys["num_lookahead_tokens"] = self.lookahead
        return keys

    # --- a step -------------------------------------------------------------------------------------------

    def preempt(self, name):
        self.emit("preempt", id=name)
        request = self.request(name)
        if request.in_flight:
            self.emit("set_computed", id=name, num_computed_tokens=0)
        self.running.remove(name)
        self.waiting.insert(0, name)

    def run_one(self, name):
        request = self.request(name)
        drafts = self.random.randint(0, self.lookahead) if self.lookahead and request.computed >= request.prompt else 0
        end = self.chunk_end(request, request.computed) + drafts
        if end > self.longest - 1 or end == request.computed:
            return
        while name in self.running:
            answer = self.emit("allocate_slots", id=name, num_new_tokens=end - request.computed, **self.options())
            if answer["new_block_ids"] is not None:
                self.scheduled[name] = (end, drafts)
                return
            victim = self.running[-1]
            self.preempt(victim)
            self.scheduled.pop(victim, None)
            self.pressed = True

    def admit(self, name):
        request = self.request(name)
        loaded = self.loading.pop(name, None)
        keys = dict(self.options(), has_scheduled_reqs=bool(self.running))
        if loaded is None:
            hit = self.emit("get_computed_blocks", id=name)["num_computed_tokens"]
            keys.update(num_new_computed_tokens=hit, use_computed=True)
        else:
            hit = 0
        if self.chance(30):
            keys["full_sequence_must_fit"] = True
        if self.chance(10):
            keys["reserved_blocks"] = self.random.randrange(6)
        start = request.computed + hit
        beyond = (len(request.tokens) - 1 - start) // self.unit
        external = 0
        if loaded is None and hit % self.unit == 0 and beyond > 0 and self.chance(20):
            external = self.unit * self.random.randint(1, beyond)
            keys["num_external_computed_tokens"] = external
        if external and self.chance(50):
            keys.update(delay_cache_blocks=True)
            keys.pop("num_lookahead_tokens", None)
            if self.emit("allocate_slots", id=name, num_new_tokens=0, **keys)["new_block_ids"] is None:
                return False
            self.emit("set_computed", id=name, num_computed_tokens=start + external)
            self.loading[name] = start + external
            return True
        end = self.chunk_end(request, start + external)
        if self.emit("allocate_slots", id=name, num_new_tokens=end - start - external, **keys)["new_block_ids"] is None:
            if loaded is not None:
                self.loading[name] = loaded
            return False
        self.waiting.remove(name)
        self.running.append(name)
        self.scheduled[name] = (end, 0)
        return True

    def settle_loads(self):
        for name in [n for n in self.loading if self.loading[n] is not True]:
            if self.chance(30):
                continue
            tokens = self.loading[name]
            if self.chance(25):  # the load failed
                self.emit("free", id=name)
                self.emit("set_computed", id=name, num_computed_tokens=0)
                del self.loading[name]
                continue
            self.emit("cache_blocks", id=name, num_computed_tokens=tokens)
            self.loading[name] = True

    def advance(self):
        for name, (end, drafts) in self.scheduled.items():
            request = self.request(name)
            count = end - request.computed
            if end - drafts >= len(request.tokens):  # the last token is there: it yields output
                accepted = self.random.randint(0, drafts)
                end -= drafts - accepted
                fresh = [self.random.choice([7, 8, 100000]) + i for i in range(accepted + 1)]
                self.emit("append_tokens", id=name, tokens=fresh)
            keys = {"num_in_flight_tokens": count} if self.in_flight and self.chance(70) else {}
            self.emit("set_computed", id=name, num_computed_tokens=end, **keys)
        for name in list(self.running):
            request = self.request(name)
            if len(request.tokens) >= self.target[name] or self.chance(2):
                self.emit("finish", id=name)
                self.running.remove(name)

    def return_copies(self):
        for source, target in self.debts:
            self.emit("pool_free", block_ids=[source, target])
        self.debts = self.emit("take_block_copies")["copies"]
        if self.debts and self.chance(60):
            self.emit("pool_free", block_ids=[block for pair in self.debts for block in pair])
            self.debts = []

    def look_around(self):
        live = list(self.machine.cache.requests)
        if live and self.chance(40):
            self.emit("get_block_ids", id=self.random.choice(live))
        if live and self.chance(20):
            self.emit("get_num_common_prefix_blocks", id=self.random.choice(live))
        if self.chance(30):
            self.emit("free_queue")
        if self.chance(20):
            self.emit("usage")
        if self.chance(20):
            self.emit("block", block_id=self.random.randrange(1, self.config["num_blocks"]))
        hashed = [name for name in live if self.request(name).hashes]
        if hashed and self.chance(40):
            hash_ = self.random.choice(self.request(self.random.choice(hashed)).hashes)
            for group in range(len(self.config["groups"])):
                self.emit("cached", hash=hash_.hex(), group=group)
        if self.chance(30):
            self.emit("take_events")
        if self.chance(5):
            number = min(4, self.config["num_blocks"] - 1)
            self.emit("evict_blocks", ids=self.random.sample(range(1, self.config["num_blocks"]), number))
        if self.chance(3):
            self.emit("reset_prefix_cache")
        if self.running and self.chance(5):
            name = self.random.choice(self.running)
            self.emit("remove_skipped_blocks", id=name,
                      num_computed_tokens=max(0, self.request(name).computed - self.request(name).in_flight))

    def step(self):
        self.scheduled, self.pressed = {}, False
        self.emit("new_step")
        self.settle_loads()
        while len(self.waiting) + len(self.running) < 5 and self.chance(60):
            self.arrive()
        for name in list(self.running):
            if name in self.running:
                self.run_one(name)
        for name in list(self.waiting):
            if self.pressed or len(self.running) > 4:
                break
            if name in self.loading and self.loading[name] is not True:
                continue
            if not self.admit(name):
                break
        self.return_copies()
        self.advance()
        self.look_around()

    def finish(self):
        for name in list(self.machine.cache.requests):
            self.emit("finish", id=name)
        for source, target in self.debts:
            self.emit("pool_free", block_ids=[source, target])
        self.emit("take_events")
        self.emit("free_queue")
        self.emit("usage")
        self.emit("reset_prefix_cache")

    def write(self, steps):
        for _ in range(steps):
            self.step()
        self.finish()
        return self.lines
