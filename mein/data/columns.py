"""Which column holds the text and which the label: the named one, or a guess."""

from collections.abc import Sequence
from difflib import get_close_matches

from mein.errors import InputError
from mein.runtime.settings import Settings

TEXT_NAMES = (
    "text",
    "review",
    "content",
    "document",
    "sentence",
    "body",
    "review_text",
    "reviewtext",
    "comment",
    "message",
    "tweet",
    "description",
    "utterance",
    "passage",
)
LABEL_NAMES = (
    "label",
    "y",
    "class",
    "category",
    "target",
    "sentiment",
    "labels",
    "polarity",
    "topic",
    "intent",
    "rating",
    "stars",
)


class ColumnsConfig(Settings):
    """The columns of tables; a folder of text files has none to name."""

    text: str | None = None
    """Column with the text; none: guessed from its name."""
    label: str | None = None
    """Column with the label; none: guessed from its name."""

    def renamed(self, text: str | None, label: str | None = None) -> "ColumnsConfig":
        """These columns, but for those that are named now."""
        return ColumnsConfig(
            text=self.text if text is None else text, label=self.label if label is None else label
        )


def find_text_column(
    names: Sequence[str], wanted: str | None, source: str, *, may_guess: bool = False
) -> str:
    """The column of the text: the wanted one, or a known name, or the only column that is not a label.

    may_guess: whether to use a known name if the wanted one is absent.
    """
    guess = _guess(names, TEXT_NAMES)
    if wanted is not None and (guess is None or not may_guess or has_column(names, wanted)):
        return _named(names, wanted, source, "text")
    if guess is not None:
        return guess
    others = [name for name in names if name.casefold() not in LABEL_NAMES]
    if len(others) != 1:
        raise _no_guess(names, source, "text")
    return others[0]


def find_label_column(names: Sequence[str], wanted: str | None, source: str) -> str:
    """The column of the label: the wanted one, or a known name."""
    if wanted is not None:
        return _named(names, wanted, source, "label")
    guess = _guess(names, LABEL_NAMES)
    if guess is None:
        raise _no_guess(names, source, "label")
    return guess


def has_column(names: Sequence[str], wanted: str) -> bool:
    """Whether a table has a column of a name, whatever its case."""
    return wanted.casefold() in map(str.casefold, names)


def _guess(names: Sequence[str], known: Sequence[str]) -> str | None:
    folded = {name.casefold(): name for name in reversed(names)}
    return next((folded[name] for name in known if name in folded), None)


def _named(names: Sequence[str], wanted: str, source: str, role: str) -> str:
    if wanted in names:
        return wanted
    folded = {name.casefold(): name for name in reversed(names)}
    if wanted.casefold() in folded:
        return folded[wanted.casefold()]
    nearest = get_close_matches(wanted.casefold(), folded, n=1, cutoff=0.5)
    hint = f"did you mean {folded[nearest[0]]!r}?" if nearest else f"{remedy(role)}."
    raise InputError(f"{source} has no column {wanted!r} among {_listed(names)}; {hint}")


def _no_guess(names: Sequence[str], source: str, role: str) -> InputError:
    return InputError(
        f"{source} has no column that looks like the {role} among {_listed(names)}; {remedy(role)}."
    )


def refuse_one_column(text: str, label: str, source: str) -> None:
    """Refuse a column that would be the text and the label of its own documents."""
    if text == label:
        raise InputError(
            f"{source} has its text and its label in one column, {text!r}: name another one for either "
            "(--text-column NAME, --label-column NAME)."
        )


def remedy(role: str) -> str:
    """What to do if a column is not found; a server, which has no options, replaces it."""
    return f"set columns.{role} to its name (--{role}-column NAME)"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
