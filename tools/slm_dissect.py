#!/usr/bin/env python3
"""Takes a .slm file apart by docs/format.md alone, checks each sum and root, and prints what is in it.

    tools/slm_dissect.py FILE.slm

Needs nothing but Python and, for the metadata, the zstd program. Exit status 1 if anything disagrees with the page.
"""
import hashlib
import json
import shutil
import struct
import subprocess
import sys

PIECE = 4 << 20
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 26: (1, 4), 30: (1, 2), 128: (64, 36)}
NAMES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K",
         14: "Q6_K", 26: "I32", 30: "BF16", 128: "Q4_64"}


def check(ok, what):
    if not ok:
        sys.exit("disagrees with docs/format.md: " + what)


def up(x, m):
    return -(-x // m) * m


def sha(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part)
    return h.digest()


def is_line(name):
    """UTF-8 that shows in one line as it reads: no control characters, separators of lines, or overrides of the direction of writing."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(c < " " or "\x7f" <= c <= "\x9f" or "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in text)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def merkle(leaves):
    if len(leaves) < 2:
        return leaves[0] if leaves else sha()
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha(b"\1", merkle(leaves[:k]), merkle(leaves[k:]))


def tensor_bytes(dtype, dims, layout):
    weights, size = BLOCKS[dtype]
    check(dims[0] % weights == 0, "row length")
    row, rows = dims[0] // weights * size, dims[1] * dims[2] * dims[3]
    return rows * row if layout == 0 else -(-rows // 16) * up(16 * row, 64)


def dissect_residuals(data, table, count, entries, values):
    """Checks the residuals behind the tensors (entries in their order); returns where they end."""
    number, end = 0, table + 16 * count
    for name, _, rank, dims, _, _, layout, _, _, residual in entries:
        if residual == 0:
            continue
        number += 1
        offset, n, zero = struct.unpack_from("<QII", data, table + 16 * (number - 1))
        check(residual == number and zero == 0 and offset == up(end, 64) and rank == 2 and layout == 1, f"residual of {name}")
        check(not any(data[end:offset]), "padding")
        cols, rows, wide = dims[0], dims[1], 4 if dims[0] > 65536 else 2
        end = offset + 4 * (rows + 1) + n * (wide + 2)
        starts = struct.unpack_from(f"<{rows + 1}I", data, offset)
        columns = struct.unpack_from(f"<{n}{'H' if wide == 2 else 'I'}", data, offset + 4 * (rows + 1))
        floats = struct.unpack_from(f"<{n}e", data, offset + 4 * (rows + 1) + n * wide)
        check(0 < n <= rows * cols and starts[0] == 0 and starts[-1] == n and list(starts) == sorted(starts), f"rows of {name}'s residual")
        for first, last in zip(starts, starts[1:]):
            own = list(columns[first:last])
            check(own == sorted(set(own)) and all(c < cols for c in own), f"columns of {name}'s residual")
        check(all(abs(v) <= 65504 for v in floats), f"values of {name}'s residual")
        values[number] = n
    check(number == count, "number of residuals")
    return end


def main(path):
    f = open(path, "rb").read()
    (magic, version, kind, log2, flags, tensors, residuals, raw, meta_at, meta_len, dir_at, data_at, data_len, res_at, pieces_at, size,
     file_root, vocab_len, crc) = struct.unpack_from("<4sHBBIIIIQQQQQQQQ32sII", f)
    check(magic == b"SLM0" and version == 0 and log2 == 22 and (residuals == 0 or kind == 0), "fixed fields")
    check(kind in (0, 1) and flags in (0, 1), "kind or flags")
    check(crc == crc32c(f[:124]), "CRC")
    check(size == len(f), "file length")
    n_pieces = -(-data_len // PIECE)
    check(pieces_at == 128 and meta_at == 128 + 32 * n_pieces, "piece table, metadata")
    vocab_at = up(meta_at + meta_len, 64)
    check(dir_at == up(vocab_at + vocab_len, 64), "directory offset")
    names_at = dir_at + 64 * tensors

    entries, name_end = [], 0
    for i in range(tensors):
        e = struct.unpack_from("<IHBB4IQQHHIII8s", f, dir_at + 64 * i)
        check(e[0] == name_end and e[14] == 0 and e[15] == bytes(8), "name offset or reserved fields")
        name_end += e[1]
        name = f[names_at + e[0]:names_at + name_end]
        check(1 <= e[1] <= 1023 and is_line(name), f"name {name!a}")
        entries.append((name, e[2], e[3], e[4:8], e[8], e[9], e[10], e[11], e[13], e[12]))
    check([e[0] for e in entries] == sorted({e[0] for e in entries}), "name order")
    check(data_at == up(names_at + name_end, 65536) and size == data_at + data_len, "data section")
    for start, end in ((meta_at + meta_len, vocab_at), (vocab_at + vocab_len, dir_at), (names_at + name_end, data_at)):
        check(not any(f[start:end]), "padding")

    end, layer_before = 0, None
    for name, dtype, rank, dims, at, length, layout, layer, *_ in sorted(entries, key=lambda e: e[4]):
        check(at == (up(end, 64 if layer == layer_before else 65536) if layer_before is not None else 0), f"place of {name}")
        check(length == tensor_bytes(dtype, dims, layout), f"length of {name}")
        check(not any(f[data_at + end:data_at + at]), "padding")
        end, layer_before = at + length, layer
    values = {}
    if residuals:
        end = dissect_residuals(memoryview(f)[data_at:], up(end, 64), residuals, sorted(entries, key=lambda e: e[4]), values)
        check(res_at == data_at + up(max(e[4] + e[5] for e in entries), 64), "table of residuals")
    else:
        check(res_at == 0, "offset of residuals")
    check(data_len == up(end, 64), "data length")

    data = memoryview(f)[data_at:]
    leaves = [sha(b"\0", data[i:i + PIECE]) for i in range(0, data_len, PIECE)]
    check(b"".join(leaves) == f[128:meta_at], "piece table")
    weights_root = merkle(leaves)
    header = f[:88] + bytes(32) + f[120:124] + bytes(4)
    inner = sha(b"\0", header, f[meta_at:meta_at + meta_len], f[vocab_at:vocab_at + vocab_len], f[dir_at:names_at + name_end])
    check(file_root == sha(b"\1", inner, weights_root), "file_root")
    unpacked = subprocess.run(["zstd", "-dc"], input=f[meta_at:meta_at + meta_len], capture_output=True)
    check(unpacked.returncode == 0, "metadata: " + unpacked.stderr.decode(errors="replace").strip())
    text = unpacked.stdout
    check(len(text) == raw and isinstance(json.loads(text), dict), "metadata")

    print(f"{path}: {('base', 'adapter')[kind]}, flags {flags}, {size} bytes, {n_pieces} pieces, vocabulary {vocab_len} bytes")
    print("weights_root sha256:" + weights_root.hex())
    print("file_root    sha256:" + file_root.hex())
    print("metadata     " + text.decode()[:200])
    for name, dtype, rank, dims, at, length, layout, layer, role, residual in sorted(entries, key=lambda e: e[4]):
        shape = " × ".join(map(str, dims[:rank]))
        print(f"{at:12} {length:11} {NAMES[dtype]:5} {('plain', 'tile')[layout]:5} layer {'-' if layer == 0xFFFF else layer:>3}"
              f" role {role:3} {name.decode()} [{shape}]" + (f", residual of {values[residual]} values" if residual else ""))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not shutil.which("zstd"):
        sys.exit("tools/slm_dissect.py: the program zstd is missing, which unpacks the metadata: apt-get install zstd")
    main(sys.argv[1])
