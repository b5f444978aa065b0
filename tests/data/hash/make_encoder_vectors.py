#!/usr/bin/env python3
"""Writes encoder_vectors.jsonl: lengths and digests of large or unusual hash units.

The pickles come from CPython's own pickler (protocol 5), the CBOR from the few lines of RFC 8949 below, so the
expected values do not depend on kvpool. Texts and tokens are described by runs, since some cases are long.

    python3 make_encoder_vectors.py > encoder_vectors.jsonl
"""
import hashlib
import json
import pickle
import struct


def cbor_head(major, value):
    for limit, info, form in ((24, None, None), (1 << 8, 24, ">B"), (1 << 16, 25, ">H"), (1 << 32, 26, ">I")):
        if value < limit:
            return bytes([major << 5 | value]) if info is None else bytes([major << 5 | info]) + struct.pack(form, value)
    return bytes([major << 5 | 27]) + struct.pack(">Q", value)


def cbor(value):
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return cbor_head(0, value) if value >= 0 else cbor_head(1, -1 - value)
    if isinstance(value, bytes):
        return cbor_head(2, len(value)) + value
    if isinstance(value, str):
        data = value.encode()
        return cbor_head(3, len(data)) + data
    return cbor_head(4, len(value)) + b"".join(cbor(item) for item in value)


def text(character, count):
    """A new object for every call: the pickler writes one object once, and later references to it."""
    return "".join([character] * count)


def build(key):
    if "bytes" in key:
        return bytes.fromhex(key["bytes"])
    if "item" in key:
        character, count, offset = key["item"]
        return (text(character, count), offset)
    return text(*key["text"])


def line(case):
    if "seed" in case:
        value = text(*case["seed"])
    else:
        tokens = tuple(token for token, count in case["tokens"] for _ in range(count))
        extra = None if case["extra"] is None else tuple(build(key) for key in case["extra"])
        value = (bytes.fromhex(case["parent"]), tokens, extra)
    for name, encode in (("pickle", lambda v: pickle.dumps(v, 5)), ("cbor", cbor)):
        data = encode(value)
        print(json.dumps(dict(case, encoder=name, length=len(data), head=data[:24].hex(), tail=data[-24:].hex(),
                              sha256=hashlib.sha256(data).hexdigest()), ensure_ascii=False))


def main():
    parent = bytes(range(32)).hex()
    for count in (0, 1, 23, 24, 254, 255, 256, 257, 65534, 65535, 65536, 65537, 131072):
        line({"seed": ["s", count]})
        line({"parent": parent, "tokens": [[7, 3]], "extra": [{"text": ["a", count]}]})
        line({"parent": parent, "tokens": [[7, 3]], "extra": [{"item": ["b", count, -1 - count]}]})
    line({"seed": ["\u00e9", 128]})
    line({"seed": ["\u6f22", 21846]})

    edges = [0, 1, 23, 24, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 8388608, 2147483647, 2147483648, 4294967295,
             4294967296, 549755813887, 549755813888, 140737488355327, 140737488355328, 36028797018963967,
             36028797018963968, 9223372036854775807]
    values = edges + [-1 - value for value in edges]
    line({"parent": parent, "tokens": [[value, 1] for value in values], "extra": None})
    for value in values:
        line({"parent": parent, "tokens": [[value, 1]], "extra": None})
    for count in (0, 1, 2, 3, 4, 23, 24, 255, 256):
        line({"parent": parent, "tokens": [[5, count]], "extra": None})

    # Around the frame limit: two-byte tokens first, then one of every width at each position that could cross it.
    for count in range(32740, 32752):
        for last in (1, 1000, 100000, 1 << 40):
            line({"parent": parent, "tokens": [[5, count], [last, 20]], "extra": [{"text": ["k", 3]}]})
    line({"parent": parent, "tokens": [[100000, 13101], [1 << 40, 20000], [-1, 30000]], "extra": None})

    large = {"text": ["x", 65536]}
    digest = {"bytes": bytes(range(100, 132)).hex()}
    line({"parent": parent, "tokens": [[1, 1]], "extra": [large, large]})
    line({"parent": parent, "tokens": [[1, 1]], "extra": [large, {"item": ["y", 70000, 3]}, {"item": ["z", 5, 9]}, large]})
    line({"parent": parent, "tokens": [[1, 40000]], "extra": [large, digest, {"text": ["s", 65535]}, digest]})
    line({"parent": parent, "tokens": [[1, 1]], "extra": [{"text": ["s", 65535]}, {"text": ["t", 65535]}, digest]})
    line({"parent": parent, "tokens": [[1, 1]], "extra": [digest]})
    for count in (1, 2, 3, 4, 24):
        line({"parent": parent, "tokens": [[1, 1]], "extra": [{"item": ["i", 4, index]} for index in range(count)]})


if __name__ == "__main__":
    main()
