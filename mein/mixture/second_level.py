"""The weights of components, fitted on logits out of fold. Not part of gates.py, whose gates learn by steps.

Components add to the expert: z' = a z + sum_j w_j c_j, drawn towards a = 1 and w_j = 0. An expert that is a
sum of views has a weight for each. Only imitators may have weights below 0, and not far below: a narrow
window may correct what wider ones repeat.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

RIDGE = 1.0  # on weights times scales, in documents; 0.3 to 10 are alike on 13 problems (log/)
LARGEST = 20.0  # of a weight times its scale
LEAST = -1.0  # the same, of components that may count against others: imitators of narrow windows


def scale_of(component: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The deviation of logits (n, Y) from their mean over the classes; 1 where they are constant."""
    centered = component - component.mean(axis=1, keepdims=True, dtype=np.float64)
    found = float(np.sqrt(np.average((centered**2).mean(axis=1), weights=weights)))
    return found if found > 0 else 1.0


def fit_weights(
    components: np.ndarray,
    labels: np.ndarray,
    documents: np.ndarray | None = None,
    first: int = 0,
    signed: int = 0,
) -> np.ndarray:
    """a and w_j (1 + J,) of components (1 + J, n, Y), by penalized log-loss.

    first: which component is the expert, of weight a. signed: how many of the last components may have
    weights down to `LEAST`. documents (n,): the weight of each. With integer weights it is as if documents
    were repeated. Without documents a = 1 and w = 0.
    """
    alone = np.zeros(len(components))
    alone[first] = 1.0
    if not len(labels) or (documents is not None and not documents.any()):
        return alone
    counts = np.ones(len(labels)) if documents is None else documents.astype(np.float64)
    scales = np.array([scale_of(one, counts) for one in components])
    c = components / scales[:, None, None]
    start = alone * scales  # a = 1
    rows = np.arange(len(labels))
    flat = c.reshape(len(c), -1)

    def objective(t: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = (t @ flat).reshape(c.shape[1:])
        mixed -= mixed.max(axis=1, keepdims=True)
        p = np.exp(mixed)
        p /= p.sum(axis=1, keepdims=True)
        loss = -counts @ np.log(np.maximum(p[rows, labels], 1e-300)) + RIDGE * ((t - start) ** 2).sum()
        p[rows, labels] -= 1.0
        gradient: np.ndarray = flat @ (counts[:, None] * p).ravel() + 2 * RIDGE * (t - start)
        return loss, gradient

    bounds = [(0.0, LARGEST)] * (len(scales) - signed) + [(LEAST, LARGEST)] * signed
    bounds[first] = (0.05 * scales[first], LARGEST * max(1.0, scales[first]))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    weights: np.ndarray = found.x / scales
    return weights


def mixed(weights: np.ndarray, components: np.ndarray) -> np.ndarray:
    """z' (n, Y) from weights (1 + J,) and components (1 + J, n, Y)."""
    found: np.ndarray = np.einsum("j,jny->ny", weights, components)
    return found


@dataclass(frozen=True)
class Examples:
    """Labeled documents with logits out of fold of every component (1 + J, n, Y)."""

    components: np.ndarray
    labels: np.ndarray
    fold: np.ndarray
    """Of each document (n,)."""
    documents: np.ndarray
    """The weight of each document where fold k is held out, and where none is (K + 1, n)."""
    views: int = 1
    """How many components, from the first, are the expert's: the best of them by itself is the start."""
    floors: tuple[int, ...] = ()
    """Components with any of which by itself the sum must keep up."""
    signed: int = 0
    """How many components, the last ones, may have weights below 0."""

    def take(self, rows: np.ndarray) -> "Examples":
        """Some of the documents."""
        some = self.components[:, rows], self.labels[rows], self.fold[rows], self.documents[:, rows]
        return replace(self, components=some[0], labels=some[1], fold=some[2], documents=some[3])

    def only(self, component: int) -> "Examples":
        """The same documents with one component."""
        return replace(self, components=self.components[[component]], views=1, floors=(), signed=0)

    def losses(self, z: np.ndarray, without: int = -1) -> float:
        """The sum of -log p of the labels under softmax(z)."""
        log_p = log_softmax(z, axis=1)[np.arange(len(self.labels)), self.labels]
        return float(-log_p @ self.documents[without])

    def weights(self, without: int = -1) -> np.ndarray:
        """The weight of every component (1 + J,), by documents that weigh as where a fold is held out.

        Where the sum has a higher log-loss on each fold, by the others, than a floor has, the floor is all.
        """
        first = int(np.argmin([self.losses(z, without) for z in self.components[: self.views]]))
        found = fit_weights(self.components, self.labels, self.documents[without], first, self.signed)
        of_floors = [self.only(j) for j in self.floors]
        if of_floors and len(np.unique(self.fold)) > 1:
            losses = [self.losses(floor.nested(without), without) for floor in of_floors]
            best = int(np.argmin(losses))
            if self.losses(replace(self, floors=()).nested(without), without) > losses[best]:
                found = np.zeros(len(found))
                found[self.floors[best]] = of_floors[best].weights(without)[0]
        return found

    def nested(self, without: int | None = None) -> np.ndarray:
        """z' (n, Y), each fold with weights that were fitted on all others: what errors are reported of.

        Documents weigh as where that fold is held out, or another one, if it is named.
        """
        found = np.zeros(self.components.shape[1:])
        for k in np.unique(self.fold):
            held = self.fold == k
            weights = self.take(~held).weights(int(k) if without is None else without)
            found[held] = mixed(weights, self.components[:, held])
        return found
