#!/usr/bin/env python3
"""Expected receipts for tests/test_receipt.c, from RFC 8032 (Ed25519), RFC 8785 and docs/manifest.md alone (standard library only).

    python3 tools/make_receipt_golden.py tests/data/receipts

alice-private.pem, alice.pem, bob.pem   keys; alice's is that of RFC 8032 section 7.1, TEST 1, bob's that of TEST 2
receipts.json                           {"hash": a receipt with a bare hash, "signed": the same signed by alice, "forged": the same, signed for
                                        the neutral point as key, which needs no secret}
low-order.json                          every key that is a point of the small subgroup, however it is written
weak.pem                                one of them
"""
import base64
import hashlib
import json
import sys
from pathlib import Path

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    """Twisted Edwards addition, affine (RFC 8032 section 5.1)."""
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return ((x1 * y2 + x2 * y1) * pow(1 + t, P - 2, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, P - 2, P) % P)


def times(n, point):
    total = (0, 1)
    while n:
        if n & 1:
            total = add(total, point)
        point = add(point, point)
        n >>= 1
    return total


def recover_x(y):
    """The even root of (y² - 1) / (d y² + 1)."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    return P - x if x & 1 else x


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = (recover_x(BASE_Y), BASE_Y)


def encode(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def secret(seed):
    h = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(h[:32], "little") & (2**254 - 8) | 2**254
    return scalar, h[32:]


def public(seed):
    return encode(times(secret(seed)[0], BASE))


def sign(seed, message):
    scalar, prefix = secret(seed)
    key = public(seed)
    r = int.from_bytes(hashlib.sha512(prefix + message).digest(), "little") % ORDER
    point = encode(times(r, BASE))
    k = int.from_bytes(hashlib.sha512(point + key + message).digest(), "little") % ORDER
    return point + ((r + k * scalar) % ORDER).to_bytes(32, "little")


def small_keys():
    """All 32 bytes that a reader may take for a point whose order divides 8: y reduced or not, and either sign, also of x = 0."""
    points = set()
    for y in range(2, 60):
        x = recover_x(y)
        if (-x * x + y * y - 1 - D * x * x * y * y) % P == 0:  # on the curve
            points.add(times(ORDER, (x, y)))
    assert points and all(times(8, p) == (0, 1) for p in points)
    points |= {add(a, b) for a in points for b in points}
    assert len(points) == 8
    rows = [y for y in {y for _, y in points} for y in (y, y + P) if y < 2**255]
    return sorted((y | sign << 255).to_bytes(32, "little").hex() for y in rows for sign in (0, 1))


def forge(scalar):
    """(key, signature) of any text: s·B = R + k·A holds with R = s·B, A the neutral point."""
    return encode((0, 1)), encode(times(scalar, BASE)) + (scalar % ORDER).to_bytes(32, "little")


def pem(kind, der):
    return f"-----BEGIN {kind}-----\n{base64.b64encode(der).decode()}\n-----END {kind}-----\n"


ALICE = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
BOB = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
OID = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo (RFC 8410)
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    assert public(ALICE).hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"  # RFC 8032, TEST 1
    assert sign(ALICE, b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac")
    (folder / "alice-private.pem").write_text(pem("PRIVATE KEY", PKCS8 + ALICE))
    (folder / "alice.pem").write_text(pem("PUBLIC KEY", OID + public(ALICE)))
    (folder / "bob.pem").write_text(pem("PUBLIC KEY", OID + public(BOB)))
    statement = {"by": "Alice", "composition_id": "sha256:" + "ab" * 32, "figures": {"perplexity": 12.5, "text": "wiki ü", "tokens": 4096},
                 "type": "lamina.receipt.v0"}
    # keys are ASCII and sorted, numbers print alike in both: the form of RFC 8785
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    hash_only = {"digest": "sha256:" + hashlib.sha256(text).hexdigest(), "statement": statement}
    signature = {"algorithm": "ed25519", "key": public(ALICE).hex(), "value": sign(ALICE, text).hex()}
    key, value = forge(2025)
    forged = {"algorithm": "ed25519", "key": key.hex(), "value": value.hex()}
    receipts = {"hash": hash_only, "signed": hash_only | {"signature": signature}, "forged": hash_only | {"signature": forged}}
    keys = small_keys()
    (folder / "low-order.json").write_text(json.dumps(keys, indent=1) + "\n")
    (folder / "weak.pem").write_text(pem("PUBLIC KEY", OID + bytes.fromhex(keys[4])))
    (folder / "receipts.json").write_text(json.dumps(receipts, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


main()
