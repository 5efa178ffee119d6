"""The weights of components, fitted on logits out of fold. Not part of gates.py, whose gates learn by steps.

Components add to the expert: z' = a z + sum_j w_j c_j with w_j >= 0, drawn towards a = 1 and w_j = 0.
"""

import numpy as np
from scipy.optimize import minimize

RIDGE = 1.0  # on weights times scales, in documents; 0.3 to 10 are alike on 13 problems (log/)
LARGEST = 20.0  # of a weight times its scale


def scale_of(component: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The deviation of logits (n, Y) from their mean over the classes; 1 where they are constant."""
    centered = component - component.mean(axis=1, keepdims=True, dtype=np.float64)
    found = float(np.sqrt(np.average((centered**2).mean(axis=1), weights=weights)))
    return found if found > 0 else 1.0


def fit_weights(
    components: np.ndarray, labels: np.ndarray, documents: np.ndarray | None = None, first: int = 0
) -> np.ndarray:
    """a and w_j (1 + J,) of components (1 + J, n, Y), by penalized log-loss.

    first: which component is the expert, of weight a. documents (n,): the weight of each. With integer
    weights it is as if documents were repeated. Without documents a = 1 and w = 0.
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

    def objective(t: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.einsum("j,jny->ny", t, c)
        mixed -= mixed.max(axis=1, keepdims=True)
        p = np.exp(mixed)
        p /= p.sum(axis=1, keepdims=True)
        loss = -counts @ np.log(np.maximum(p[rows, labels], 1e-300)) + RIDGE * ((t - start) ** 2).sum()
        p[rows, labels] -= 1.0
        gradient: np.ndarray = np.einsum("n,ny,jny->j", counts, p, c) + 2 * RIDGE * (t - start)
        return loss, gradient

    bounds = [(0.0, LARGEST)] * len(scales)
    bounds[first] = (0.05 * scales[first], LARGEST * max(1.0, scales[first]))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    weights: np.ndarray = found.x / scales
    return weights


def mixed(weights: np.ndarray, components: np.ndarray) -> np.ndarray:
    """z' (n, Y) from weights (1 + J,) and components (1 + J, n, Y)."""
    found: np.ndarray = np.einsum("j,jny->ny", weights, components)
    return found


def fit_nested(
    components: np.ndarray, labels: np.ndarray, fold: np.ndarray, documents: np.ndarray | None = None
) -> np.ndarray:
    """z' (n, Y), each fold with weights that were fitted on all others: what errors are reported of.

    documents: (n,), or (K, n): the weight of each where fold k is held out.
    """
    found = np.zeros(components.shape[1:])
    counts = np.broadcast_to(1.0 if documents is None else documents, (int(fold.max()) + 1, len(labels)))
    for k in np.unique(fold):
        rest = fold != k
        weights = fit_weights(components[:, rest], labels[rest], counts[k, rest])
        found[~rest] = mixed(weights, components[:, ~rest])
    return found
