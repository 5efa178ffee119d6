"""Line 1 for the linear expert: its features, and its fits in folds and on all labels.

The expert is a sum of linear models over different features of the same documents, its views: all features
together, the n-grams by themselves, an encoder by itself. Their weights are fitted out of fold. A sum of
linear models is a linear model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax

from mein.mixture.second_level import fit_weights, mixed, scale_of
from mein.model.artefacts import ArtefactContent, leave
from mein.run.state import Run
from mein.run.warm_start import shards_at_random, word_vectors_of
from mein.runtime.seeds import derive_seed
from mein.runtime.tensors import load_tensors
from mein.text.features import TextFeatures, learn_features
from mein.text.ragged import Ragged, concatenate, parted
from mein.training.linear import Block, Reduced, fit_in_folds, inner_products

FEATURES, FITS = "features", "fits"
MOST_DOCUMENTS = 40_000  # unlabeled ones that features are learned from, and that imitators of a fold read
EVERYTHING, NGRAMS, ENCODER = "everything", "n-grams", "encoder"
VIEWS = {EVERYTHING: ("ngrams", "latent", "vectors", "encoder"), NGRAMS: ("ngrams",), ENCODER: ("encoder",)}
"""The blocks of features that each view has."""


def learned_features(run: Run) -> TextFeatures:
    """What needs no labels, from the labeled text and some of the unlabeled."""

    def learned() -> ArtefactContent:
        run.log("Features are learned from the text, without labels")
        vectors = word_vectors_of(run)
        own, labeled = parted(run.store("train").words(), run.row_size)
        dense, unlabeled = parted(_some_rows(run), run.row_size)
        found = learn_features(
            labeled,
            unlabeled,
            vectors,
            dense if len(dense) else own,
            run.indexer.words.size,
            derive_seed(run.config.seed, FEATURES),
        )
        return {name: torch.from_numpy(array) for name, array in found.tensors().items()}, {}

    leave(run.folder, FEATURES, learned)
    tensors, _ = load_tensors(run.folder / f"{FEATURES}.safetensors")
    return TextFeatures(run.indexer.words.size, **{name: array.numpy() for name, array in tensors.items()})


def _some_rows(run: Run) -> Ragged:
    """The rows of at most `MOST_DOCUMENTS` unlabeled documents, from shards in a drawn order."""
    if not run.has_imitators:
        return Ragged(np.zeros(0, np.int32), np.zeros(1, np.int64))
    shards, documents = list[Ragged](), 0
    for words in shards_at_random([run.store("unlabeled")], run.config.seed):
        shards.append(words.take(np.arange(min(len(words), MOST_DOCUMENTS - documents))))
        documents += len(shards[-1])
        if documents >= MOST_DOCUMENTS:
            break
    return concatenate(shards)


@dataclass(frozen=True)
class ViewFits:
    """The fits of V views on the labels outside each of K folds, and last on all of them."""

    views: tuple[str, ...]
    floors: tuple[int, ...]
    """Which views are what a user would pick instead: n-grams by themselves, an encoder by itself."""
    tables_of: Callable[[np.ndarray, int], dict[str, torch.Tensor]]
    """A sum of views, weighted (V,), of one fit, as the expert keeps it."""
    out_of_fold: np.ndarray
    """z (V, n, Y) of each document by the fit that has not seen it; by the last fit if it is in no fold."""
    labels: np.ndarray
    weights: np.ndarray
    """Of the documents where each fold is held out, and where none is (K + 1, n)."""
    fold: np.ndarray
    """Of each document (n,); -1: none."""
    match: np.ndarray
    """What the last fit of each view is multiplied by (V,): weights are of the smaller logits of folds."""

    def weights_of_views(self, without: int | None = None) -> np.ndarray:
        """Of each view in their sum (V,), fitted on the logits of all folds but one."""
        rows = np.flatnonzero((self.fold >= 0) & (self.fold != without))
        weights = self.weights[-1 if without is None else without, rows]
        z, labels = self.out_of_fold[:, rows], self.labels[rows]
        losses = -log_softmax(z, axis=2)[:, np.arange(len(rows)), labels] @ weights
        return fit_weights(z, labels, weights, first=int(losses.argmin()))

    def expert_out_of_fold(self) -> np.ndarray:
        """z (n, Y) of the expert: of each fold with weights that were fitted on the others."""
        found = mixed(self.weights_of_views(), self.out_of_fold)
        for k in range(int(self.fold.max()) + 1):
            held = self.fold == k
            found[held] = mixed(self.weights_of_views(k), self.out_of_fold[:, held])
        return found

    def expert_of(self, k: int) -> dict[str, torch.Tensor]:
        """The expert that has not seen the labels of fold k; of all labels: -1."""
        if k < 0:
            return self.tables(self.weights_of_views() * self.match)
        return self.tables_of(self.weights_of_views(k), k)

    def tables(self, weights: np.ndarray) -> dict[str, torch.Tensor]:
        """A sum of views that learned from all labels, as the expert keeps it."""
        return self.tables_of(weights, -1)


@dataclass(frozen=True)
class LinearTables:
    """Sums of linear views. A fit's weights are blocks' W = x' duals, for documents x that are labeled."""

    features: TextFeatures
    blocks: Mapping[str, Block]
    """Features (n, D) of the labeled documents, by name."""
    views: tuple[str, ...]
    duals: np.ndarray
    """(V, K + 1, n, Y), float64."""
    bias: np.ndarray
    """(V, K + 1, Y)."""

    def __call__(self, weights: np.ndarray, k: int) -> dict[str, torch.Tensor]:
        """A sum of views as the expert keeps it: latent dimensions and word vectors are multiplied out."""
        duals = {
            name: np.einsum(
                "v,vny->ny", weights * [name in VIEWS[view] for view in self.views], self.duals[:, k]
            )
            for name in self.blocks
        }
        of = {name: block.T @ duals[name] for name, block in self.blocks.items()}
        arrays = {
            "codes": self.features.codes,
            "idf": self.features.idf,
            "weights": of["ngrams"] + self.features.latent @ of["latent"],
            "table": self.features.vectors @ of["vectors"],
            "dense": self.features.dense[:, None] * of["encoder"],
            "bias": weights @ self.bias[:, k],
        }
        return {
            name: torch.from_numpy(array if name == "codes" else array.astype(np.float32))
            for name, array in arrays.items()
        }


def fold_weights(run: Run, fold: np.ndarray) -> np.ndarray:
    """What documents weigh where fold k is held out, and where none is (K + 1, n), float32."""
    number = int(fold.max()) + 1
    return np.stack([run.labeled.weights_without(fold == k) for k in (*range(number), number)])


def learned_fits(run: Run, fold: np.ndarray) -> ViewFits:
    """The fits of all views of the labeled documents; fold (n,): -1 for those that always teach."""
    features, labeled, weights = learned_features(run), run.labeled, fold_weights(run, fold)
    dense, words = parted(run.store("train").words(), run.row_size)
    blocks = features.blocks(words, dense)
    views = tuple(
        view
        for view, names in VIEWS.items()
        if view == EVERYTHING or any(blocks[name].shape[1] for name in names)
    )

    def learned() -> ArtefactContent:
        of_views = []
        for view in views:
            x = Reduced.of([blocks[name] for name in VIEWS[view]])
            fits = fit_in_folds(x.rows, labeled.train_ids, weights, fold, run.classes)
            every = (*fits.folds, fits.last)
            of_views.append(
                {
                    "duals": np.stack([x.duals(fit.weights) for fit in every]),
                    "bias": np.stack([fit.bias for fit in every]),
                    "out_of_fold": fits.out_of_fold,
                    "strengths": np.array([fit.strength for fit in every]),
                }
            )
        arrays = {name: np.stack([of[name] for of in of_views]) for name in of_views[0]}
        arrays["match"] = np.array(
            [match_of(z) for z in _logits_of_held_out(run, features, blocks, views, arrays)]
        )
        return {name: torch.from_numpy(array) for name, array in arrays.items()}, {}

    leave(run.folder, FITS, learned)
    tensors, _ = load_tensors(run.folder / f"{FITS}.safetensors")
    duals, bias, out_of_fold, match = (
        tensors[name].numpy() for name in ("duals", "bias", "out_of_fold", "match")
    )
    floors = tuple(v for v, view in enumerate(views) if view != EVERYTHING)
    tables = LinearTables(features, blocks, views, duals, bias)
    return ViewFits(views, floors, tables, out_of_fold, labeled.train_ids, weights, fold, match)


def _logits_of_held_out(
    run: Run,
    features: TextFeatures,
    blocks: Mapping[str, Block],
    views: Sequence[str],
    fits: Mapping[str, np.ndarray],
) -> Iterator[np.ndarray]:
    """z (K + 1, m, Y) of the held-out unlabeled documents by all fits of each view; m may be 0."""
    rows = Ragged(np.zeros(0, np.int32), np.zeros(1, np.int64))
    if run.has_imitators:
        store = run.store("held_out")
        rows = concatenate(store.words(n) for n in range(store.shard_count))
    dense, words = parted(rows, run.row_size)
    products = {
        name: inner_products(block, blocks[name]) for name, block in features.blocks(words, dense).items()
    }
    for view, duals, bias in zip(views, fits["duals"], fits["bias"], strict=True):
        yield sum(products[name] for name in VIEWS[view]) @ duals + bias[:, None]


def match_of(z: np.ndarray) -> float:
    """The scale of logits (K + 1, m, Y) of fits in folds, of which the last fit's is one."""
    if z.shape[0] < 2 or z.shape[1] == 0:
        return 1.0
    scales = [scale_of(of_fit) for of_fit in z]
    return float(np.mean(scales[:-1]) / scales[-1])
