"""Known texts are found again among others: by letters and symbols first, and then for certain."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mein.data import splits as known
from mein.data.splits import KnownTexts, fingerprints, text_key

TEXT = st.text(st.sampled_from("aAbB_1 .,+$~^\n-éßſK…ü😀\ufe0f\0\ud800"), max_size=6) | st.text(max_size=6)


@given(st.lists(TEXT, max_size=8), st.lists(TEXT, max_size=8))
@example(["ab"], ["a b"])  # the same letters
@example(["ALL…"], ["all", "aLL!"])  # ASCII once its signs are gone
@example(["ss", "K"], ["ß", "\N{KELVIN SIGN}"])  # ASCII once it is folded
@example(["", " "], ["", "..."])  # of which none is known
@example(["...", "👍", "a +b"], ["... ", "👍", "!", "A+ b", "a b"])  # signs alone, and symbols
def test_texts_are_known_where_their_keys_are(texts: list[str], others: list[str]) -> None:
    keys = {text_key(text) for text in texts} - {""}
    expected = [text_key(other) in keys for other in others]
    found = KnownTexts.of([texts[:3], texts[3:]])
    assert found.among(others).tolist() == expected


def test_what_shares_no_letters_needs_no_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def counted(texts: list[str]) -> np.ndarray:
        seen.extend(texts)
        return fingerprints(texts)

    test = KnownTexts.of([["Good film."]])
    monkeypatch.setattr(known, "fingerprints", counted)
    others = ["a bad film", "GOOD film", "goo dfilm", "bon goût"]
    assert test.among(others).tolist() == [False, True, False, False]
    assert seen == ["GOOD film", "goo dfilm", "bon goût"]
