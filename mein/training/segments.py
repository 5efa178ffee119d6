"""What a language model loses on a segment of text, read by one process or by several."""

import torch
from torch import Tensor

from mein import ranks
from mein.experts.language_model import LanguageModel, word_losses
from mein.inference import device_of, fast_precision
from mein.text.batches import to_device
from mein.training.shares import Share


def segment_losses(
    model: LanguageModel,
    direction: int,
    rows: Tensor,
    state: Tensor,
    rate: float = 0.0,
    dropout: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """-log p (B, L) of every next word in rows (B, L + 1), 0 where it is padding, and the state after them.

    Padding is read and then left out, for to pick words a GPU would have to be waited for.
    """
    with fast_precision(device_of(model)):
        outputs, state = model.read(direction, rows[:, :-1], state, rate, dropout)
    wanted = rows[:, 1:]
    read = outputs.flatten(0, 1).to(model.embedding.weight.dtype)
    losses = word_losses(model.softmax, read, wanted.flatten()).view(wanted.shape)
    return losses * (wanted != 0), state


def mean_loss(
    model: LanguageModel,
    direction: int,
    rows: Tensor,
    state: Tensor,
    rate: float,
    dropout: torch.Generator,
    share: Share | None,
) -> tuple[Tensor, Tensor]:
    """The mean of `segment_losses`, and the state after them, a constant; of a share, its part of the mean.

    The state is that of all rows, whoever read them, so that another number of processes can go on.
    """
    words = (rows[:, 1:] != 0).sum()
    if share is None:
        losses, after = segment_losses(model, direction, rows, state, rate, dropout)
        return losses.sum() / words, after.detach()
    own = to_device(share.rows, rows.device)
    losses, read = segment_losses(model, direction, rows[own], state[:, :, own], rate, dropout)
    after = torch.zeros_like(state)
    if share.counts:
        after[:, :, own] = read.detach()
    ranks.add_up(after)
    return losses.sum() / words * float(share.counts), after
