"""Where in a text its pieces stand, so that the text itself can be shown, and not what was read of it."""

from collections.abc import Iterator

from mein.text.encoder import Encoder
from mein.text.pieces import UNKNOWN
from mein.text.words import LINE_BREAK, PATTERNS, WordsConfig, tokenize

Span = tuple[int, int]


def piece_spans(encoder: Encoder, text: str) -> list[Span] | None:
    """First and one past the last character of each piece; None where letters change number in lower case."""
    words = word_spans(text, encoder.words_config)
    if words is None:
        return None
    tokens = tokenize(text, encoder.words_config)
    found: list[Span] = []
    for (start, _), token, pieces in zip(words, tokens, encoder.pieces.encode(tokens), strict=True):
        found += ((start + first, start + last) for first, last in _inside(encoder, token, pieces))
    return found


def word_spans(text: str, config: WordsConfig) -> list[Span] | None:
    """Where the tokens of a text stand in it; None where they cannot be told."""
    if config.tokenizer == "words":
        text = LINE_BREAK.sub(lambda tag: " " * len(tag[0]), text)
    matches = list(PATTERNS[config.tokenizer].finditer(text))
    surface = [match[0].lower() if config.lowercase else match[0] for match in matches]
    return [match.span() for match in matches] if surface == tokenize(text, config) else None


def _inside(encoder: Encoder, token: str, pieces: list[int]) -> Iterator[Span]:
    """The characters of a token that each of its pieces spells; unknown ones take what lies between."""
    spelled = [piece.strip() for piece in encoder.pieces.fragments(pieces)]
    at = 0
    for place, (piece, letters) in enumerate(zip(pieces, spelled, strict=True)):
        stop = at + len(letters)
        if piece == UNKNOWN:
            known = [s for p, s in zip(pieces[place + 1 :], spelled[place + 1 :], strict=True) if p > UNKNOWN]
            stop = token.index(known[0], at) if known else len(token)
        yield at, stop
        at = stop
