"""scikit-learn's API checks, ported to texts: check_estimator skips every one of them for string input."""

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import ClassifierMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from mein import MeinClassifier
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

METHODS = ["predict", "predict_proba", "predict_log_proba", "decision_function"]


@pytest.fixture(scope="module")
def fitted() -> MeinClassifier:
    model = tiny().fit(TEXTS, LABELS, unlabeled=RAW)
    assert model.score(NEW, NEW_LABELS) > 0.8, "it must have learned, or the tests below prove little"
    assert (model.gates_ > 0.1).all(), "and its imitators must count"
    return model


@pytest.fixture(scope="module")
def of_three() -> MeinClassifier:
    return tiny().fit(THREE_TEXTS, THREE_LABELS, unlabeled=RAW)


def test_init_sets_its_parameters_and_nothing_else() -> None:
    names = list(inspect.signature(MeinClassifier).parameters)
    given = {name: object() for name in names}  # no value is looked at, let alone refused
    model = MeinClassifier(**given)  # type: ignore[arg-type]
    assert vars(model) == given
    assert all(vars(model)[name] is value for name, value in given.items())


def test_clone_has_the_parameters_and_none_of_the_learning(fitted: MeinClassifier) -> None:
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert vars(twin).keys() == fitted.get_params().keys()
    assert twin.settings is not fitted.settings


def test_get_params_and_set_params_are_inverse() -> None:
    wanted = {"preset": "paper", "settings": {"seed": 1}, "class_weight": "balanced", "compares": True}
    wanted |= {"soft_labels": len, "run_dir": "here", "device": "cpu", "verbose": True, "random_state": 7}
    wanted |= {"encoder": "MiniLM", "from_run": "there", "expert": repr}
    model = MeinClassifier()
    assert model.get_params().keys() == wanted.keys()
    assert model.set_params(**wanted) is model
    assert model.get_params() == wanted
    with pytest.raises(ValueError, match="Invalid parameter 'windows'"):
        model.set_params(windows=3)


def test_repr_names_what_differs_from_the_defaults() -> None:
    assert repr(MeinClassifier()) == "MeinClassifier()"
    assert repr(MeinClassifier(random_state=7)) == "MeinClassifier(random_state=7)"


def test_tags_declare_texts_in_classes_out() -> None:
    tags = get_tags(MeinClassifier())
    assert is_classifier(MeinClassifier())
    assert (tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array) == (1, 1, 0)
    assert tags.target_tags.required
    assert not tags.classifier_tags.multi_label
    assert not tags.non_deterministic
    assert MeinClassifier.__mro__.index(ClassifierMixin) == 1, "mixins stand to the left"


@pytest.mark.parametrize("method", [*METHODS, "explain", "save", "score"])
def test_before_fit_every_method_raises_not_fitted(method: str) -> None:
    arguments: list[Any] = [LABELS] if method == "score" else []
    with pytest.raises(NotFittedError, match="This MeinClassifier instance is not fitted yet"):
        getattr(MeinClassifier(), method)(TEXTS, *arguments)


def test_fit_returns_self_and_leaves_parameters_alone() -> None:
    model = tiny(class_weight="balanced")
    before = pickle.dumps(model.get_params())
    assert model.fit(TEXTS, LABELS) is model
    assert pickle.dumps(model.get_params()) == before
    learned = vars(model).keys() - model.get_params().keys()
    assert learned == {"model_", "classes_", "gates_", "verdict_"}


def test_fit_again_forgets_what_was_there(fitted: MeinClassifier) -> None:
    """Same random_state, same probabilities, bit for bit; also on a classifier that knew other classes."""
    again = tiny().fit(THREE_TEXTS, THREE_LABELS)
    again.fit(TEXTS, LABELS, unlabeled=RAW)
    assert_array_equal(again.predict_proba(NEW), fitted.predict_proba(NEW))
    assert_array_equal(again.classes_, fitted.classes_)


def test_random_state_decides(fitted: MeinClassifier) -> None:
    def probabilities(random_state: Any) -> np.ndarray:
        return tiny(random_state=random_state).fit(TEXTS, LABELS, unlabeled=RAW).predict_proba(NEW)

    drawn = probabilities(np.random.RandomState(5))
    assert_array_equal(drawn, probabilities(np.random.RandomState(5)))
    assert_array_equal(probabilities(np.int64(2)), fitted.predict_proba(NEW))
    assert not np.array_equal(drawn, fitted.predict_proba(NEW))
    assert not np.array_equal(probabilities(None), probabilities(None))


@pytest.mark.parametrize("method", METHODS)
def test_neither_order_nor_company_changes_an_answer(of_three: MeinClassifier, method: str) -> None:
    ask: Callable[[Any], np.ndarray] = getattr(of_three, method)
    texts = [*NEW, "", "good", " ".join(NEW)]
    answers = ask(texts)
    shuffle = np.random.default_rng(0).permutation(len(texts))
    for rows in (shuffle, np.arange(5), np.array([len(texts) - 1])):
        part = ask([texts[row] for row in rows])
        if method == "predict":
            assert_array_equal(part, answers[rows])
        else:
            assert_allclose(part, answers[rows], rtol=1e-5, atol=1e-6)  # float32 in other batches


def test_a_pickle_answers_alike(fitted: MeinClassifier) -> None:
    twin = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - our own bytes
    assert_array_equal(twin.predict_proba(NEW), fitted.predict_proba(NEW))
    assert twin.explain(NEW[0]) == fitted.explain(NEW[0])
    unfitted = pickle.loads(pickle.dumps(tiny()))  # noqa: S301
    assert unfitted.get_params() == tiny().get_params()


@pytest.mark.parametrize("model", ["fitted", "of_three"])
def test_probabilities_are_probabilities(model: str, request: pytest.FixtureRequest) -> None:
    classifier: MeinClassifier = request.getfixturevalue(model)
    texts = [*NEW, ""]
    probabilities = classifier.predict_proba(texts)
    assert probabilities.shape == (len(texts), len(classifier.classes_))
    assert (probabilities >= 0).all()
    assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(np.exp(classifier.predict_log_proba(texts)), probabilities)
    assert_array_equal(classifier.classes_[probabilities.argmax(axis=1)], classifier.predict(texts))


def test_decision_function_orders_as_the_probabilities_do(
    fitted: MeinClassifier, of_three: MeinClassifier
) -> None:
    scores, probabilities = fitted.decision_function(NEW), fitted.predict_proba(NEW)
    assert scores.shape == (len(NEW),)
    assert_array_equal(np.argsort(scores), np.argsort(probabilities[:, 1]))
    assert_array_equal(scores > 0, fitted.predict(NEW) == fitted.classes_[1])
    scores, probabilities = of_three.decision_function(NEW), of_three.predict_proba(NEW)
    assert scores.shape == probabilities.shape == (len(NEW), 3)
    assert_array_equal(np.argsort(scores, axis=1), np.argsort(probabilities, axis=1))


def test_score_is_accuracy(fitted: MeinClassifier) -> None:
    expected = np.mean(fitted.predict(TEXTS) == np.array(LABELS))
    assert fitted.score(TEXTS, LABELS) == expected


POSITIVE = np.array([label == "positive" for label in LABELS])
NAMINGS: dict[str, tuple[Any, list[Any]]] = {
    "str": (LABELS, ["negative", "positive"]),
    "int": ([5 if p else 2 for p in POSITIVE], [2, 5]),
    "int that sort otherwise as text": ([10 if p else 9 for p in POSITIVE], [9, 10]),
    "bool": (POSITIVE.tolist(), [False, True]),
    "object": (np.array(LABELS, dtype=object), ["negative", "positive"]),
    "numpy str": (np.array(LABELS), ["negative", "positive"]),
    "numpy int8": (POSITIVE.astype(np.int8), [0, 1]),
    "numpy bool": (POSITIVE, [False, True]),
    "several types": (["yes" if p else 0 for p in POSITIVE], [0, "yes"]),
}


@pytest.mark.parametrize("naming", NAMINGS)
def test_classes_are_sorted_and_come_back_as_they_were_given(naming: str, fitted: MeinClassifier) -> None:
    y, classes = NAMINGS[naming]
    model = tiny().fit(TEXTS, y, unlabeled=RAW)
    assert model.classes_.tolist() == classes
    assert [type(label) for label in model.classes_.tolist()] == [type(label) for label in classes]
    assert model.predict(NEW).tolist() == [classes[label == "positive"] for label in fitted.predict(NEW)]
    for text in NEW[:5]:
        one, first = model.predict(text), model.predict([text]).tolist()[0]
        assert (one, type(one)) == (first, type(first))


def test_classes_are_sorted_whichever_comes_first() -> None:
    assert LABELS[-1] == "positive"
    assert tiny().fit(TEXTS[::-1], LABELS[::-1]).classes_.tolist() == ["negative", "positive"]


def test_cross_val_predict_answers_for_every_text() -> None:
    labels = cross_val_predict(tiny(), np.array(TEXTS), np.array(LABELS), cv=2)
    assert set(labels) == {"negative", "positive"}
    probabilities = cross_val_predict(tiny(), TEXTS, LABELS, cv=2, method="predict_proba")
    assert_allclose(probabilities.sum(axis=1), 1.0)


def test_grid_search_over_settings_finds_the_better_one() -> None:
    idle = SETTINGS | {"expert_training.epochs": 0}
    search = GridSearchCV(tiny(), {"settings": [idle, SETTINGS]}, cv=2, scoring="neg_log_loss")
    search.fit(TEXTS, LABELS)
    assert search.best_params_ == {"settings": SETTINGS}
    assert search.best_estimator_.score(NEW, NEW_LABELS) > 0.8


def test_calibration_wraps_it() -> None:
    calibrated = CalibratedClassifierCV(tiny(), cv=2).fit(TEXTS, LABELS)
    assert_allclose(calibrated.predict_proba(NEW).sum(axis=1), 1.0)
    assert set(calibrated.predict(NEW)) <= {"negative", "positive"}


def test_a_pipeline_passes_texts_and_raw_text_through(fitted: MeinClassifier) -> None:
    shout = FunctionTransformer(lambda texts: [text.upper() for text in texts])
    pipeline = Pipeline([("shout", shout), ("model", tiny())])
    pipeline.fit(TEXTS, LABELS, model__unlabeled=RAW)  # the classifier folds case
    assert_allclose(pipeline.predict_proba(NEW), fitted.predict_proba(NEW))


def test_metadata_routing_carries_unlabeled_and_weights() -> None:
    weights = np.linspace(0.5, 1.5, len(TEXTS))
    with sklearn.config_context(enable_metadata_routing=True):
        model = tiny().set_fit_request(unlabeled=True, sample_weight=True)
        model.set_score_request(sample_weight=False)
        pipeline = Pipeline([("model", model)]).fit(TEXTS, LABELS, unlabeled=RAW, sample_weight=weights)
        search = GridSearchCV(model, {"random_state": [2]}, cv=2)
        search.fit(TEXTS, LABELS, unlabeled=RAW, sample_weight=weights)
    expected = tiny().fit(TEXTS, LABELS, unlabeled=RAW, sample_weight=weights)
    assert_array_equal(pipeline.predict_proba(NEW), expected.predict_proba(NEW))
    assert_array_equal(search.predict_proba(NEW), expected.predict_proba(NEW))
