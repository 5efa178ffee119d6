"""Where in a text its pieces stand, so that the text itself can be shown, and not what was read of it."""

from collections.abc import Iterator

from mein.text.encoder import Encoder
from mein.text.pieces import UNKNOWN
from mein.text.words import words_in

Spelled = tuple[str, int, int]


def spelled_pieces(encoder: Encoder, text: str) -> Iterator[Spelled]:
    """Each piece with its letters as they were read, behind a space where it begins a word, and where it
    stands in the text: its first character, and one past its last."""
    words = words_in(text, encoder.words_config)
    cut = encoder.pieces.encode([word for word, _, _ in words])
    for (word, start, stop), pieces in zip(words, cut, strict=True):
        for number, (first, last) in enumerate(_inside(encoder, word, pieces)):
            letters = word[first:last] if number else f" {word[first:last]}"
            yield letters, min(start + first, stop), min(start + last, stop)  # some letters grow when lowered


def _inside(encoder: Encoder, word: str, pieces: list[int]) -> Iterator[tuple[int, int]]:
    """The characters of a word that each of its pieces spells; unknown ones take what lies between."""
    spelled = [piece.strip() for piece in encoder.pieces.fragments(pieces)]
    at = 0
    for place, (piece, letters) in enumerate(zip(pieces, spelled, strict=True)):
        stop = at + len(letters)
        if piece == UNKNOWN:
            known = [s for p, s in zip(pieces[place + 1 :], spelled[place + 1 :], strict=True) if p > UNKNOWN]
            stop = word.index(known[0], at) if known else len(word)
        yield at, stop
        at = stop
