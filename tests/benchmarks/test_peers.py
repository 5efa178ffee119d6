"""The peers: against scikit-learn's own pipelines, a loop over single texts, and a double of SetFit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from benchmarks.draws import Cell, Document
from benchmarks.peers import Resources, embed, encoder, self_training, setfit, tfidf, tfidf_and_encoder
from mein.data.demo import demo_corpus
from mein.errors import InputError, MissingExtra
from mein.hub.networks import transformers_quietly
from tests.support.hub_models import build

DEMO = demo_corpus(seed=5, labeled=60, unlabeled=200, test=50)
CELL = Cell(
    [Document(text, str(label)) for text, label in zip(DEMO.labeled_texts, DEMO.labeled_labels, strict=True)],
    DEMO.unlabeled_texts,
    [Document(text, str(label)) for text, label in zip(DEMO.test_texts, DEMO.test_labels, strict=True)],
)
DOUBLE = """
import numpy as np
class SetFitModel:
    def from_pretrained(folder):
        found = SetFitModel(); found.model_head = found; return found
    def predict_proba(self, texts, as_numpy):
        return np.tile([0.25, 0.75], (len(texts), 1))
class TrainingArguments:
    def __init__(self, **given): self.given = given
class Trainer:
    def __init__(self, model, args, train_dataset): self.all = (model, args, train_dataset)
    def train(self):
        model, args, rows = self.all
        assert rows["text"][0] == "one" and args.given["num_epochs"] == 1
        model.classes_ = np.unique(rows["label"])
"""


def resources(folder: Path, encoder: Path | None = None) -> Resources:
    return Resources(encoder, folder / "embeddings", folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("Bert", tmp_path_factory.mktemp("bert"), classes=None)


def test_tfidf_takes_the_best_c_of_five_folds(tmp_path: Path) -> None:
    texts, labels = [d.text for d in CELL.labeled], [d.label for d in CELL.labeled]
    X = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    accuracy = {
        C: cross_val_score(LogisticRegression(C=C, max_iter=2000), X, labels, cv=folds).mean()
        for C in (0.3, 1, 3, 10, 30)
    }
    best = max(accuracy, key=lambda C: accuracy[C])  # the first of equals, as a search has it
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=best, max_iter=2000)).fit(texts, labels)
    found = tfidf(CELL, resources(tmp_path))
    assert found.classes.tolist() == pipeline.classes_.tolist()
    tests = [d.text for d in CELL.test]
    np.testing.assert_allclose(found.probabilities, pipeline.predict_proba(tests), atol=1e-12)


def test_self_training_learns_from_raw_text_that_it_is_sure_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tfidf(CELL, resources(tmp_path))
    monkeypatch.setattr("benchmarks.peers.SURE", 0.999)
    unsure = self_training(CELL, resources(tmp_path))
    np.testing.assert_allclose(unsure.probabilities, plain.probabilities, atol=1e-6)
    monkeypatch.setattr("benchmarks.peers.SURE", 0.5)
    sure = self_training(CELL, resources(tmp_path))
    assert sure.classes.tolist() == plain.classes.tolist()
    assert np.abs(sure.probabilities - plain.probabilities).max() > 0.05


def test_classes_of_few_labels_make_fewer_folds(tmp_path: Path) -> None:
    texts = [Document(f"{word} {i}", word) for word in ("red", "blue") for i in range(3)]
    found = tfidf(Cell([*texts, Document("green", "green")], [], texts), resources(tmp_path))
    assert found.classes.tolist() == ["blue", "green", "red"]
    assert found.classes[found.probabilities.argmax(1)].tolist() == [d.label for d in texts]


def test_embeddings_are_means_of_length_one(bert: Path) -> None:
    texts = ["a good film", "the very long and dull plot was not good !", "bad"] * 12  # two batches
    found = embed(texts, bert)
    with transformers_quietly() as transformers, torch.no_grad():
        tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
        model = transformers.AutoModel.from_pretrained(bert).eval()
        for text, vector in zip(texts[:3], found[:3], strict=True):
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]  # without padding
            mean = states.mean(0).numpy()
            np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_array_equal(found[:3], found[-3:].reshape(3, -1))


def test_embeddings_are_kept_with_their_seconds(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = resources(tmp_path, bert)
    first = encoder(CELL, own)
    for kept in own.embeddings.glob("*.npz"):
        with np.load(kept) as content:
            np.savez(kept, vectors=content["vectors"], seconds=100.0)
    monkeypatch.setattr("benchmarks.peers.embed", None)  # nobody encodes again
    second = encoder(CELL, own)
    np.testing.assert_array_equal(first.probabilities, second.probabilities)
    assert second.seconds > 200 > first.seconds  # of labeled and of test texts
    both = tfidf_and_encoder(CELL, own)
    assert both.seconds > 200
    assert both.probabilities.shape == first.probabilities.shape
    assert not np.allclose(both.probabilities, first.probabilities)


def test_a_folder_without_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing is no encoder \(.*\): set --encoder\."):
        encoder(CELL, resources(tmp_path, tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"This system needs an encoder: name its folder by --encoder\."):
        encoder(CELL, resources(tmp_path))


def test_setfit_is_asked_for_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"SetFit needs the package setfit \(No module named .*\): pip in"):
        setfit(CELL, resources(tmp_path, tmp_path))


def test_setfit_learns_numbers_and_answers_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "setfit.py").write_text(DOUBLE, encoding="utf-8")
    (tmp_path / "datasets.py").write_text(
        "class Dataset:\n    from_dict = staticmethod(dict)", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    cell = Cell([Document("one", "yes"), Document("two", "no")], [], [Document("three", "yes")] * 3)
    found = setfit(cell, resources(tmp_path, tmp_path))
    assert found.classes.tolist() == ["no", "yes"]
    assert found.probabilities.tolist() == [[0.25, 0.75]] * 3
