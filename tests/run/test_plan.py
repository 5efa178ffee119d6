"""What a training uses and why, and what would help more."""

from pathlib import Path

import pytest

from mein.config import load_config
from mein.run.plan import Facts, choices, helpful, preset_of

SMALL = load_config("small")
SHORT = ["where is the capital of france ?"] * 20


def facts(counts: dict[str, int] | None = None, unlabeled: int = 20_000, **others: object) -> Facts:
    """Of short texts with enough labels of each class, unless other ones are named."""
    given = {"a": 60, "b": 40} if counts is None else counts
    return Facts(given, unlabeled, **({"sample": SHORT} | others))  # type: ignore[arg-type]


def used(preset: str = "small", has_dev: bool = False, known: Facts | None = None) -> dict[str, str]:
    found = choices(load_config(preset), (preset, "--preset names it"), known or facts(), has_dev=has_dev)
    return {choice.name: f"{choice.value} ({choice.why})" for choice in found}


def test_what_is_used_follows_from_settings_and_data() -> None:
    found = used()
    assert found["preset"] == "small (--preset names it)"
    assert found["labels"].startswith("all 100 teach, in 5 folds (")
    assert found["imitators"] == "4, of 3, 5, 7, 9 pieces (20,000 unlabeled documents teach)"
    assert found["text"] == "words (spaces separate them)"
    assert "lexicon" in found
    assert "encoder" not in found


def test_without_unlabeled_text_there_are_neither_imitators_nor_a_lexicon() -> None:
    found = used(known=facts(unlabeled=0))
    assert found["imitators"] == "none (there is no unlabeled text)"
    assert "lexicon" not in found


def test_experts_that_learn_by_steps_validate_on_some_labels() -> None:
    assert used("full")["labels"] == "75 teach, 25 validate (there is no --dev)"
    assert used("full", has_dev=True)["labels"] == "all 100 teach (--dev validates)"


def test_text_without_spaces_is_read_by_letters() -> None:
    found = used(known=facts(sample=["这部电影很好看"] * 5))
    assert found["text"] == "single letters (100% are of scripts without spaces)"


def test_the_preset_has_a_reason() -> None:
    assert preset_of("paper", None, None, lambda: "small") == ("paper", "--preset names it")
    assert preset_of(None, Path("my.toml"), None, lambda: "small") == ("none", "my.toml has the settings")
    assert preset_of(None, None, "auto", lambda: "small") == ("frozen", "--encoder names an encoder")
    assert preset_of(None, None, None, lambda: "small") == ("small", "there is no GPU")
    assert preset_of(None, None, None, lambda: "full") == ("full", "there is a GPU")


def test_rare_classes_are_named_the_rarest_first() -> None:
    ways = list(helpful(SMALL, facts({"a": 40, "17": 2, "b": 30})))
    assert ways[0] == "more labels of rare classes ('17' has 2 labels)"
    ways = list(helpful(SMALL, facts({"a": 40, "x": 3, "y": 2, "z": 9, "w": 8, "v": 1})))
    wanted = (
        "more labels of rare classes ('v' has 1, 'y' has 2, 'x' has 3 labels, and 2 more classes have few)"
    )
    assert ways[0] == wanted
    assert next(helpful(SMALL, facts({"a": 9, "b": 10}))).count("'") == 2, "10 are enough"


def test_an_encoder_helps_where_texts_are_short_and_labels_few() -> None:
    def is_advised(**known: object) -> bool:
        settings = load_config("frozen") if known.pop("has_encoder", False) else SMALL
        return any("an encoder" in way for way in helpful(settings, facts(**known)))  # type: ignore[arg-type]

    assert is_advised()
    assert not is_advised(has_encoder=True)
    assert not is_advised(sample=["word " * 100])
    assert not is_advised(counts={"a": 2_000, "b": 1})
    assert not is_advised(sample=["这部电影很好看"])


@pytest.mark.parametrize(
    ("unlabeled", "outcome", "way"),
    [
        (0, None, "unlabeled text of the same kind (there is none)"),
        (1, None, "more unlabeled text of the same kind (there is 1 document)"),
        (9_999, "helped", "more unlabeled text of the same kind (there are 9,999 documents)"),
        (9_999, "unclear", None),
        (10_000, None, None),
    ],
)
def test_more_text_is_advised_where_there_is_little_and_it_helped(
    unlabeled: int, outcome: str | None, way: str | None
) -> None:
    ways = [way for way in helpful(SMALL, facts(unlabeled=unlabeled), outcome) if "unlabeled text" in way]
    assert ways == ([] if way is None else [way])


def test_repeated_leaked_and_contradictory_texts_are_named() -> None:
    ways = list(helpful(SMALL, facts(repeated=6, conflicts=1, leaked=2)))
    assert "other texts instead of repeated ones (6 labeled documents)" in ways
    assert "one label for each text (1 text has several)" in ways
    assert "a test set without training text (2 documents are in both)" in ways
    assert not any("repeated" in way for way in helpful(SMALL, facts(repeated=5))), "1 in 20 does no harm"
