"""Random numbers that are addressed, not consumed."""

import hashlib


def derive_seed(*parts: object) -> int:
    """A seed for the random stream that belongs to `parts`, such as (seed, parameter name).

    Streams are addressed, not consumed: what one draws never depends on what was drawn before.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # torch takes 63 bits
