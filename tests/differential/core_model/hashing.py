"""Block hashes of a request, sha256_cbor only: one plain encoder is enough to compare everything else."""
import hashlib


def _head(major, value):
    if value < 24:
        return bytes([major << 5 | value])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << 8 * size:
            return bytes([major << 5 | code]) + value.to_bytes(size, "big")
    raise ValueError(value)


def encode(value):
    if value is None:
        return b"\xf6"
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    return _head(4, len(value)) + b"".join(encode(item) for item in value)


def digest(value):
    return hashlib.sha256(encode(value)).digest()


def item_keys(items, start, end, cursor):
    """Images that overlap tokens [start, end), and where the next search starts."""
    if not items or items[-1]["offset"] + items[-1]["length"] <= start:
        return [], cursor
    if cursor < 0:
        cursor += len(items)
    keys = []
    while cursor < len(items):
        item = items[cursor]
        last = item["offset"] + item["length"]
        if end <= item["offset"]:
            break
        if start >= last:
            cursor += 1
            continue
        keys.append([item["identifier"], item["offset"] - start])
        if end < last:
            break
        cursor += 1
    return keys, cursor


class Request:
    def __init__(self, name, tokens, unit, root, lora=None, cache_salt=None, mm=(), skip_reading=False):
        self.name, self.tokens, self.unit, self.root = name, list(tokens), unit, root
        self.lora, self.salt, self.items, self.skip_reading = lora, cache_salt, list(mm), skip_reading
        self.prompt = len(self.tokens)
        self.hashes = []
        self.computed = self.in_flight = self.boundary = 0
        self.waiting = True  # waiting or preempted
        self.hash_new_units()

    def extra_keys(self, start, end, cursor):
        keys = [self.lora] if self.lora else []
        images, cursor = item_keys(self.items, start, end, cursor)
        keys += images
        if start == 0 and self.salt:
            keys.append(self.salt)
        return (keys or None), cursor

    def hash_new_units(self):
        if self.root is None:  # caching is off
            return
        start = len(self.hashes) * self.unit
        cursor = 0 if start == 0 else -1
        while start + self.unit <= len(self.tokens):
            extra, cursor = self.extra_keys(start, start + self.unit, cursor)
            parent = self.hashes[-1] if self.hashes else self.root
            self.hashes.append(digest([parent, self.tokens[start:start + self.unit], extra]))
            start += self.unit

    def append(self, tokens):
        self.tokens += tokens
        self.hash_new_units()
