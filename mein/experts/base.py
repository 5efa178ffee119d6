"""What an expert is: logits for a batch of documents, through embeddings that can be perturbed."""

from torch import Generator, Tensor, nn


class Expert(nn.Module):
    """z = classify(embed(words)): every expert is cut in two where adversarial training pushes.

    `words` is what the expert reads of each document, padded with zeros at the end: numbers of words
    (B, T), or, for a frozen encoder or a teacher, a row of numbers that somebody else computed (B, F).
    `lengths` (B,) are the true lengths. With a generator, embeddings and layers are dropped out, and
    two calls with generators of one seed drop out alike.
    """

    classes: int
    """Y."""
    drops_out_inside: bool = False
    """Whether `classify` drops out too: what it drops of a document then hangs on the rest of the batch."""

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Embeddings (B, T, D), float32, of words (B, T)."""
        raise NotImplementedError

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y) from embeddings (B, T, D)."""
        raise NotImplementedError

    def forward(self, words: Tensor, lengths: Tensor, dropout: Generator | None = None) -> Tensor:
        """Logits z (B, Y) of words (B, T). B: documents, T: longest, Y: classes."""
        return self.classify(self.embed(words, lengths, dropout), lengths, dropout)
