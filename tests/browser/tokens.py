"""Writes a new key set (jwks.json) and a token of `olga` (token) into a folder, as an issuer makes them: JWT with ES256.

ECDSA on P-256, FIPS 186-5. Not for other uses: its run time depends on the key.
"""

import base64
import hashlib
import json
import pathlib
import secrets
import sys
import time

PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BASE = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)


def add(p, q):
    """The sum of two points; None is the neutral one."""
    if p is None or q is None:
        return p or q
    if p[0] == q[0]:
        if (p[1] + q[1]) % PRIME == 0:
            return None
        slope = (3 * p[0] * p[0] - 3) * pow(2 * p[1], -1, PRIME)
    else:
        slope = (q[1] - p[1]) * pow(q[0] - p[0], -1, PRIME)
    x = (slope * slope - p[0] - q[0]) % PRIME
    return x, (slope * (p[0] - x) - p[1]) % PRIME


def multiply(factor, point):
    result = None
    while factor:
        if factor & 1:
            result = add(result, point)
        point = add(point, point)
        factor >>= 1
    return result


def sign(key, message):
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = secrets.randbelow(ORDER - 1) + 1
    r = multiply(nonce, BASE)[0] % ORDER
    s = (digest + r * key) * pow(nonce, -1, ORDER) % ORDER
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def main(folder):
    key = secrets.randbelow(ORDER - 1) + 1
    x, y = (encode(number.to_bytes(32, "big")).decode() for number in multiply(key, BASE))
    jwk = {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "first", "x": x, "y": y}
    header = {"alg": "ES256", "typ": "JWT", "kid": "first"}
    claims = {"sub": "olga", "aud": "oxtsdb", "exp": int(time.time()) + 3600}
    message = b".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}))
    (folder / "token").write_text((message + b"." + encode(sign(key, message))).decode())


main(pathlib.Path(sys.argv[1]))
