"""Random numbers that are addressed: what is drawn never depends on what was drawn before."""

import hashlib


def derive_seed(*address: object) -> int:
    """The seed of the random stream that belongs to an address, such as (seed, parameter name).

    63 bits of the sha256 of its parts as text, joined by slashes.
    """
    digest = hashlib.sha256("/".join(map(str, address)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
