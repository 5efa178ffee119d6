"""Documents without labels for vat and ivat: a batch for every step, the same for the same step."""

import numpy as np

from mein.seeds import numpy_generator
from mein.text.ragged import Ragged, concatenate
from mein.text.store import Store

CANDIDATES = 16  # batches that one batch of like length is drawn from


class UnlabeledBatches:
    """Documents of like length, labelled or not but without their labels, for each step anew."""

    def __init__(self, stores: list[Store], documents: int, seed: int) -> None:
        self.shards = [(store, shard) for store in stores for shard in range(store.shard_count)]
        self.sizes = np.array([store.shard_lengths[shard] for store, shard in self.shards])
        self.documents = documents
        self.seed = seed

    def __call__(self, step: int) -> tuple[Ragged, Ragged]:
        """The words and the pieces of a step's documents."""
        random = numpy_generator(self.seed, "unlabelled batch", step)
        store, shard = self.shards[random.choice(len(self.shards), p=self.sizes / self.sizes.sum())]
        words = store.words(shard)
        batches = max(1, min(CANDIDATES, len(words) // self.documents))
        candidates = random.permutation(len(words))[: batches * self.documents]
        candidates = candidates[np.argsort(words.lengths[candidates], kind="stable")]
        start = (
            int(random.integers(batches)) * self.documents
        )  # one of them: all lengths as often as they are
        rows = candidates[start : start + self.documents]
        return concatenate([words.take(rows)]), concatenate([store.pieces(shard).take(rows)])
