"""One seed enters at the edge; every use draws from its own stream, derived from it by name."""

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream with these names.

    >>> derive_seed(0, "dropout", 7) == derive_seed(0, "dropout", 7)
    True
    >>> derive_seed(0, "dropout", 7) == derive_seed(0, "dropout", 8)
    False
    """
    digest = hashlib.blake2b(repr((int(seed), *names)).encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator for the stream with these names."""
    return np.random.default_rng(derive_seed(seed, *names))
