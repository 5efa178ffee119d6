"""Free gates, fitted where the expert has not seen the labels: (z + sum_i g_i alpha_i) / tau on dev."""

import numpy as np
import torch
from scipy.optimize import minimize
from torch.nn import functional

SHRINKAGE = 1.0  # how strongly, in documents' worth of loss, the gates are drawn to one another


def fit_gates(logits: np.ndarray, alpha: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Gates g (I,) >= 0 that minimise the log-loss of softmax((z + sum_i g_i alpha_i) / tau).

    logits (n, Y), alpha (I, n, Y), labels (n,). tau is fitted along and dropped: dividing every
    logit by it moves no decision, and calibration finds it again in the end. The windows' alphas
    say much the same, so a few dozen labels cannot tell them apart: the gates are drawn together.
    """
    z, a = torch.from_numpy(logits).double(), torch.from_numpy(alpha).double()
    y = torch.from_numpy(labels)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        t = torch.from_numpy(theta).requires_grad_()
        log_gates = t[1:]
        mixed = (z + torch.einsum("i,iny->ny", log_gates.exp(), a)) * (-t[0]).exp()
        penalty = SHRINKAGE * ((log_gates - log_gates.mean()) ** 2).sum()
        loss = functional.cross_entropy(mixed, y, reduction="sum") + penalty
        (gradient,) = torch.autograd.grad(loss, t)
        return loss.item(), gradient.numpy()

    bounds = [(-3.0, 5.0)] + [(-10.0, 5.0)] * len(alpha)
    found = minimize(objective, np.zeros(1 + len(alpha)), jac=True, bounds=bounds)
    gates: np.ndarray = np.exp(found.x[1:])
    return gates
