"""What MeinClassifier takes and refuses: texts, labels, weights, raw text of every make."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from mein import MeinClassifier
from mein.errors import ConfigError, InputError, MeinError, RunError
from mein.predict.predict import predict_file
from tests.support.reviews import (
    LABELS,
    NEW,
    NEW_LABELS,
    RAW,
    SETTINGS,
    TEXTS,
    THREE_LABELS,
    THREE_TEXTS,
    tiny,
)

CONTAINERS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "array of strings": np.array,
    "Series": pd.Series,
    "Series of objects": lambda texts: pd.Series(texts, dtype=object),
    "Series with its own index": lambda texts: pd.Series(texts, index=range(len(texts), 0, -1)),
    "Arrow array": pa.array,
    "Arrow chunks": lambda texts: pa.chunked_array([texts[:7], texts[7:]]),
    "generator": lambda texts: (text for text in texts),
}


@pytest.fixture(scope="module")
def fitted() -> MeinClassifier:
    return tiny().fit(TEXTS, LABELS, unlabeled=RAW)


@pytest.fixture(scope="module")
def answers(fitted: MeinClassifier) -> np.ndarray:
    return fitted.predict_proba(NEW)


def refuses(sentence: str, X: Any, y: Any, **given: Any) -> None:
    """fit refuses with one sentence, as an InputError that is also the ValueError scikit-learn raises."""
    with pytest.raises(ValueError, match=sentence) as caught:
        tiny().fit(X, y, **given)
    assert isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_predicts_texts_in_any_container(
    make: Callable[[list[str]], Any], fitted: MeinClassifier, answers: np.ndarray
) -> None:
    assert_array_equal(fitted.predict_proba(make(NEW)), answers)


def test_fits_texts_and_labels_in_any_container(answers: np.ndarray) -> None:
    pairs = [("Series with its own index", "tuple"), ("generator", "Arrow array")]
    for of_texts, of_labels in pairs:
        X, y = CONTAINERS[of_texts](TEXTS), CONTAINERS[of_labels](LABELS)
        assert_array_equal(tiny().fit(X, y, unlabeled=RAW).predict_proba(NEW), answers)


def test_one_text_is_answered_in_kind(fitted: MeinClassifier, answers: np.ndarray) -> None:
    label = fitted.predict(NEW[0])
    assert type(label) is str
    assert label == fitted.predict(NEW[:1])[0]
    assert_allclose(fitted.predict_proba(NEW[0]), answers[0], atol=1e-6)
    assert_allclose(np.exp(fitted.predict_log_proba(NEW[0])), answers[0], atol=1e-6)
    score = fitted.decision_function(NEW[0])
    assert np.shape(score) == ()
    assert score == pytest.approx(fitted.decision_function(NEW)[0], abs=1e-5)


def test_no_text_gets_no_answer(fitted: MeinClassifier) -> None:
    assert fitted.predict([]).shape == (0,)
    assert fitted.predict_proba([]).shape == (0, 2)
    assert fitted.decision_function([]).shape == (0,)


def test_a_text_without_known_words_gets_the_classes_shares() -> None:
    rows = [i for i, label in enumerate(LABELS) if label == "negative" or i % 4 == 1]  # 2 to 1
    model = tiny().fit([TEXTS[i] for i in rows], [LABELS[i] for i in rows])
    assert_allclose(model.predict_proba(["", " \n"]), [[2 / 3, 1 / 3]] * 2, atol=0.02)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        ("a single text", "X is the single text 'a single text': give a list, even of one text."),
        (b"a single text", "X is the single text b'a single text'"),
        (np.array([TEXTS]), r"X is a table of shape \(1, 60\): give one column of it."),
        (pd.DataFrame({"text": TEXTS}), r"X is a table of shape \(60, 1\): give one column of it."),
        (np.array("text"), "X is array.*: give a list, an array or a column."),
        ({"text": TEXTS}, r"X is a mapping with the keys \['text'\]: give one of its values."),
        (3, "X is 3: give a list, an array or a column."),
        (None, "X is None: give a list"),
        ([*TEXTS[:59], None], "X holds None of type NoneType at position 59: give one text"),
        (pd.Series([None, *TEXTS[1:]]), "X holds nan of type float at position 0"),
        (pd.Series([pd.NA, *TEXTS[1:]], dtype="string"), "X holds <NA> of type NAType at position 0"),
        ([[text[:9]] for text in TEXTS], r"X holds \['.*'\] of type list at position 0"),
        ([text.encode() for text in TEXTS], "of type bytes at position 0"),
        (TEXTS[1:], "X holds 59 texts but y holds 60 labels: give one for each."),
    ],
)
def test_refuses_what_is_not_texts(X: Any, sentence: str) -> None:
    refuses(sentence, X, LABELS)


def test_refuses_what_is_not_texts_when_predicting_too(fitted: MeinClassifier) -> None:
    with pytest.raises(InputError, match="X holds nan of type float at position 1"):
        fitted.predict(["fine", float("nan")])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"X is a table of shape \(1, 1\)"):
        fitted.predict_proba(np.array([["fine"]]))
    with pytest.raises(InputError, match=r"The text to explain is \['fine'\]: give a single text."):
        fitted.explain(["fine"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (None, "requires y to be passed"),
        ("ab", "y is the single text 'ab'"),
        ([LABELS], "X holds 60 texts but y holds 1 labels"),
        (np.array([LABELS]).T, r"y is a table of shape \(60, 1\): give one column of it."),
        (["positive"] * 60, r"y holds the single class 'positive' \(60 documents\); add documents"),
        ([1] * 30 + [-1] * 30, "y holds the single class 1 beside -1, which marks texts without a label"),
        (np.array([1.0, -1.0] * 30), "y holds the single class 1.0 beside -1, which marks texts without"),
        ([None] * 60, "y holds no labels; give it labeled documents."),
        ([0.5] * 30 + [1.0] * 30, "y has the label 0.5, a fractional number"),
        ([float("nan"), *LABELS[1:]], "y has no label; fill it in"),
        (pd.Series([pd.NA, *LABELS[1:]], dtype="string"), "y has no label; fill it in"),
        ([["p"], ["n"]] * 30, r"y has the label \['p'\] of type list; write labels as integers or strings."),
        (["\ud800", *LABELS[1:]], r"y has the label '\\ud800', which is not UTF-8; write it as text."),
        (
            [float(2**60), 1.0] * 30,
            r"y has the label 1\.15.*e\+18, a floating-point number of more than 15 dig",
        ),
    ],
)
def test_refuses_labels_that_cannot_be_used(y: Any, sentence: str) -> None:
    refuses(sentence, TEXTS, y)


def test_none_and_minus_one_in_y_mean_raw_text(answers: np.ndarray) -> None:
    numbers = [int(label == "positive") for label in LABELS]
    marked: list[tuple[Any, Any]] = [
        (LABELS, [None] * len(RAW)),
        (LABELS, [-1] * len(RAW)),
        (numbers, [-1] * len(RAW)),
        (np.array(numbers, np.int8), np.full(len(RAW), -1, np.int8)),
        (numbers, pd.Series([None] * len(RAW), dtype=float).fillna(-1)),
        (np.array(numbers, np.float32), np.full(len(RAW), -1, np.float32)),
    ]
    for known, unknown in marked:
        model = tiny().fit([*RAW, *TEXTS], [*unknown, *known])
        assert_array_equal(model.predict_proba(NEW), answers)
    both = tiny().fit([*TEXTS, *RAW[:50]], [*LABELS, *[None] * 50], unlabeled=RAW[50:])
    assert_array_equal(both.predict_proba(NEW), answers)


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_takes_raw_text_in_any_container(make: Callable[[list[str]], Any], answers: np.ndarray) -> None:
    model = tiny().fit(TEXTS, LABELS, unlabeled=make(RAW))
    assert_array_equal(model.predict_proba(NEW), answers)


def test_takes_raw_text_from_files(answers: np.ndarray, tmp_path: Path) -> None:
    pd.DataFrame({"opinion": RAW[:70], "title": ""}).to_csv(tmp_path / "raw-1.csv", index=False)
    pd.DataFrame({"opinion": RAW[70:], "title": ""}).to_csv(tmp_path / "raw-2.csv", index=False)
    pd.DataFrame({"text": RAW, "title": ""}).to_csv(tmp_path / "other.csv", index=False)
    (tmp_path / "all.txt").write_text("\n".join(RAW) + "\n", encoding="utf-8")
    named = tiny(settings={"columns.text": "opinion"})
    for model, source in (
        (tiny(), tmp_path / "all.txt"),
        (tiny(), str(tmp_path / "all.txt")),
        (named, str(tmp_path / "raw-*.csv")),
        (named, tmp_path / "other.csv"),
    ):
        assert_array_equal(model.fit(TEXTS, LABELS, unlabeled=source).predict_proba(NEW), answers)


@pytest.mark.parametrize(
    ("unlabeled", "sentence"),
    [
        ("no/such/raw.txt", "no/such/raw.txt does not exist; check the path."),
        (iter(()), "unlabeled is an iterator without a text in it: one that was read before is empty"),
        ((text for text in [*RAW * 9, None]), "unlabeled holds None of type NoneType at position 1080"),
        ([*RAW, 7], "unlabeled holds 7 of type int at position 120"),
        (7, "unlabeled is 7: give texts, a path or a glob."),
    ],
)
def test_refuses_raw_text_that_is_none(unlabeled: Any, sentence: str) -> None:
    refuses(sentence, TEXTS, LABELS, unlabeled=unlabeled)


def test_half_characters_in_a_stream_do_no_harm() -> None:
    odd = [f"{text} \ud800" for text in RAW]
    streamed, listed = (tiny().fit(TEXTS, LABELS, unlabeled=raw) for raw in (iter(odd), odd))
    assert_array_equal(streamed.predict_proba(NEW), listed.predict_proba(NEW))


@pytest.mark.parametrize("documents", [0, 1, 2, 3])
def test_little_or_no_raw_text_is_allowed(documents: int) -> None:
    model = tiny().fit(TEXTS, LABELS, unlabeled=RAW[:documents])
    assert len(model.gates_) == (0 if documents < 2 else 2)
    assert model.predict_proba(NEW).shape == (40, 2)


def test_a_weight_of_zero_is_as_good_as_absence() -> None:
    wrong = ["positive" if label == "negative" else "negative" for label in LABELS]
    X, y, weight = TEXTS + TEXTS, LABELS + wrong, [3.0] * 60 + [0.0] * 60
    weighted = tiny().fit(X, y, sample_weight=weight).predict_proba(NEW)
    assert_array_equal(weighted, tiny().fit(TEXTS, LABELS).predict_proba(NEW))
    assert np.abs(weighted - tiny().fit(X, y).predict_proba(NEW)).max() > 0.1


def test_weights_pull_towards_their_documents() -> None:
    """A third of the texts come again with the wrong label; their weight determines how much that hurts."""
    wrong = ["positive" if label == "negative" else "negative" for label in LABELS[:20]]
    right = {}
    for weight in (0.02, 1.0, 30.0):
        weights = [1.0] * 60 + [weight] * 20
        model = tiny().fit(TEXTS + TEXTS[:20], LABELS + wrong, sample_weight=weights)
        columns = np.searchsorted(model.classes_, NEW_LABELS)
        right[weight] = model.predict_proba(NEW)[np.arange(len(NEW)), columns].mean()
    assert right[0.02] > right[1.0] + 0.05
    assert right[1.0] > right[30.0] + 0.05


def test_balanced_weights_act_and_are_weights_by_name() -> None:
    """That they are n / (Y n_y) is shown where they are made, in test_prepare.py."""
    by_class = {name: [i for i, label in enumerate(LABELS) if label == name] for name in set(LABELS)}
    rows = sorted(by_class["negative"][:24] + by_class["positive"][:8])  # 3 to 1, also in train: 18 and 6
    X, y = [TEXTS[i] for i in rows], [LABELS[i] for i in rows]
    kinds: tuple[Any, ...] = (None, "balanced", {"positive": 3.0}, {"positive": 3e-9, "negative": 1e-9})
    plain, balanced, *by_name = (
        tiny(class_weight=kind, settings={"expert_training.epochs": 3}).fit(X, y).predict_proba(NEW)
        for kind in kinds
    )
    assert np.abs(balanced - plain).max() > 0.01
    for found in by_name:
        assert_array_equal(found, balanced)


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        ([1.0] * 59, r"sample_weight of shape \(59,\) does not fit: give 60 finite weights of 0 or more."),
        ([-1.0] + [1.0] * 59, "give 60 finite weights of 0 or more."),
        ([float("nan")] + [1.0] * 59, "give 60 finite weights of 0 or more."),
        (["much"] * 60, "sample_weight holds something that is not a number"),
        ([0.0] * 60, "The weight of every text is 0: give some of them a weight above 0."),
    ],
)
def test_refuses_weights_that_do_not_fit(weight: Any, sentence: str) -> None:
    refuses(sentence, TEXTS, LABELS, sample_weight=weight)


def test_refuses_class_weights_of_unknown_classes() -> None:
    with pytest.raises(InputError, match="class_weight names 'positiv', which y lacks"):
        tiny(class_weight={"positiv": 2.0}).fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match="Setting class_weight is 'balance'"):
        tiny(class_weight="balance").fit(TEXTS, LABELS)
    with pytest.raises(
        InputError, match=r"The weights of texts or classes differ by more than 10\*\*37: give"
    ):
        tiny(class_weight={"positive": 1e300}).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"imitators.window": [1]}, "Unknown setting 'imitators.window': did you mean 'imitators.windows'?"),
        ({"seed": 3}, "Setting seed is a parameter here: use random_state= instead."),
        ({"runtime.device": "cpu"}, "Setting runtime.device is a parameter here: use device= instead."),
    ],
)
def test_refuses_settings_that_would_be_lost(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")) as caught:
        tiny(settings=settings).fit(TEXTS, LABELS)
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize("settings", [[1], "seed=1", {5: 1}, {None: 1}])
def test_refuses_settings_that_are_no_mapping_from_names(settings: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"settings is .*: give a mapping from names of settings to values\."
    ):
        MeinClassifier(settings=settings).fit(TEXTS, LABELS)


def test_a_setting_may_be_an_array() -> None:
    model = tiny(settings={**SETTINGS, "imitators.windows": np.array([1, 3])}).fit(TEXTS, LABELS)
    assert model.model_.config.imitators.windows == (1, 3)


def test_refuses_an_unknown_device() -> None:
    with pytest.raises(ConfigError, match=r"Unknown device 'gpu': choose auto, cpu, cuda or cuda:1"):
        MeinClassifier(settings=SETTINGS, device="gpu").fit(TEXTS, LABELS)


def test_compares_leaves_a_verdict() -> None:
    model = tiny(compares=True).fit(TEXTS, LABELS, unlabeled=RAW)
    assert isinstance(model.verdict_, str)
    assert model.set_params(compares=False).fit(TEXTS, LABELS).verdict_ is None


def test_run_dir_keeps_the_run(fitted: MeinClassifier, answers: np.ndarray, tmp_path: Path) -> None:
    model = tiny(run_dir=tmp_path / "run").fit(TEXTS, LABELS, unlabeled=RAW)
    assert_array_equal(model.predict_proba(NEW), answers)
    assert_array_equal(MeinClassifier.load(tmp_path / "run", "cpu").predict_proba(NEW), answers)
    with pytest.raises(RunError, match="run already holds a run: give another run_dir, or load it"):
        model.fit(TEXTS, LABELS)


@pytest.mark.parametrize("raw", [RAW, None], ids=["taught", "plain expert"])
def test_saving_and_loading_changes_no_prediction(raw: list[str] | None, tmp_path: Path) -> None:
    model = tiny().fit(THREE_TEXTS, THREE_LABELS, unlabeled=raw)
    model.save(tmp_path / "saved")
    loaded = MeinClassifier.load(str(tmp_path / "saved"), device="cpu")
    assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.explain(NEW[0]) == model.explain(NEW[0])
    loaded.save(tmp_path / "again")
    twice = MeinClassifier.load(tmp_path / "again", device="cpu")
    assert_array_equal(twice.predict_proba(NEW), model.predict_proba(NEW))


@pytest.mark.parametrize(
    "classes",
    [(0, 1), (False, True), ("é", "日本"), (0, 2**64 - 1), (1, 2**63), (-2, 2**63), (1, 2**70), ("a", "a\0")],
)
def test_labels_keep_their_value_and_type_on_disk(classes: tuple[Any, Any], tmp_path: Path) -> None:
    model = tiny().fit(TEXTS, [classes[label == "positive"] for label in LABELS])
    model.save(tmp_path / "saved")
    found = MeinClassifier.load(tmp_path / "saved").classes_.tolist()
    assert [(label, type(label)) for label in found] == [(label, type(label)) for label in classes]
    (tmp_path / "new.csv").write_text("text\nfine\n", encoding="utf-8")
    predict_file(model.model_, str(tmp_path / "new.csv"), tmp_path / "out.parquet")
    (predicted,) = pq.read_table(tmp_path / "out.parquet")["label"].to_pylist()
    assert str(predicted) == str(model.predict("fine"))
    assert model.predict(["fine"]).tolist() == [model.predict("fine")]


def test_a_loaded_classifier_learns_as_the_saved_one_did(
    fitted: MeinClassifier, answers: np.ndarray, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "saved")
    again = clone(MeinClassifier.load(tmp_path / "saved", device="cpu")).fit(TEXTS, LABELS, unlabeled=RAW)
    assert_array_equal(again.predict_proba(NEW), answers)


def test_no_pickle_is_ever_written(fitted: MeinClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "saved")
    tiny(run_dir=tmp_path / "run", compares=True).fit(TEXTS, LABELS, unlabeled=RAW)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes <= {"", ".json", ".jsonl", ".txt", ".model", ".safetensors", ".parquet", ".arrow"}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":  # which begin with a length, any byte
            assert path.read_bytes()[:1] != b"\x80", f"{path} begins like a pickle"
            assert path.read_bytes()[:2] != b"PK", f"{path} begins like a zip, as torch.save writes it"


def test_save_refuses_a_folder_in_use(fitted: MeinClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "saved")
    with pytest.raises(RunError, match=r"saved already holds a run: save to another folder."):
        fitted.save(tmp_path / "saved")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("words", encoding="utf-8")
    with pytest.raises(RunError, match="thesis exists and is not a run of mein"):
        fitted.save(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text(encoding="utf-8") == "words"
    with pytest.raises(RunError, match=r"Cannot write .*chapter.txt"):
        fitted.save(tmp_path / "thesis" / "chapter.txt")


def test_load_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"There is no run folder .*nowhere: give the one that"):
        MeinClassifier.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match=r"There is no run folder .*file: give the one that"):
        MeinClassifier.load(tmp_path / "file")
    with pytest.raises(RunError, match=r"is not a run of mein: config.json is missing"):
        MeinClassifier.load(tmp_path)


NEEDED = ["config.json", "labels.json", "vocabularies.json", "words.txt", "pieces.model"]
WEIGHTS = ["imitators.safetensors", "mixture.safetensors"]


@pytest.mark.parametrize("name", [*NEEDED, *WEIGHTS, "done"])
def test_load_refuses_a_run_with_a_file_missing(name: str, fitted: MeinClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RunError, match="is not finished" if name == "done" else name):
        MeinClassifier.load(tmp_path)


@pytest.mark.parametrize("name", [*NEEDED, *WEIGHTS])
@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.99])
def test_load_refuses_a_run_with_a_byte_changed(
    name: str, where: float, fitted: MeinClassifier, tmp_path: Path
) -> None:
    fitted.save(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[int(where * len(content))] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=name):
        MeinClassifier.load(tmp_path)


@pytest.mark.parametrize("name", [*NEEDED, *WEIGHTS])
def test_load_refuses_a_run_with_a_file_cut_short(name: str, fitted: MeinClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match=name):
        MeinClassifier.load(tmp_path)


def test_load_refuses_other_gates_than_were_learned(fitted: MeinClassifier, tmp_path: Path) -> None:
    """The gates lie in the weights' header: a changed one is still valid JSON, and must not pass."""
    fitted.save(tmp_path)
    path = tmp_path / "mixture.safetensors"
    content = path.read_bytes()
    gate = json.dumps(fitted.gates_[0]).encode()
    at = content.index(gate, content.index(b"gates"))
    path.write_bytes(content[:at] + b"9" + content[at + 1 :])
    with pytest.raises(RunError, match=r"mixture.safetensors is damaged or was changed"):
        MeinClassifier.load(tmp_path)


def test_load_refuses_a_run_of_a_later_version(fitted: MeinClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    content = json.loads((tmp_path / "done").read_text(encoding="utf-8"))
    (tmp_path / "done").write_text(json.dumps(content | {"mein": 99}), encoding="utf-8")
    with pytest.raises(RunError, match="has format 99, this mein reads 3: upgrade mein"):
        MeinClassifier.load(tmp_path)


def test_errors_are_what_scikit_learn_users_catch() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(InputError, MeinError)
    assert not issubclass(RunError, ValueError)
