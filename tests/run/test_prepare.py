"""Before training: nothing of dev or test leaks in, parts are disjoint, weights and counts are right."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mein.data.corpus import Corpus, source_of_lists
from mein.errors import InputError, RunError
from mein.model.artefacts import load_indexer
from mein.run.documents import held_out_rows, read_labeled
from mein.run.prepare import notes, prepare
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.store.store import Store
from tests.support import tiny

LABELED = [f"plain text number{i} of the {'good' if i % 3 else 'bad'} sort" for i in range(40)]
LABELS = ["good" if i % 3 else "bad" for i in range(40)]
RAW = [f"raw text number{i} with sign{i % 7}" for i in range(60)]


def prepared(path: Path, corpus: Corpus, **overrides: Any) -> tuple[RunFolder, dict[str, int]]:
    config, folder = tiny.config(**overrides), RunFolder(path)
    with folder.held():
        counts = prepare(config, corpus, folder, Quiet(), resume=path.exists()).counts
    return folder, counts


def corpus_of(raw: list[str], test: list[str] | None = None, dev: list[str] | None = None) -> Corpus:
    return Corpus(
        labeled=source_of_lists(LABELED, LABELS),
        unlabeled=source_of_lists(raw),
        dev=None if dev is None else source_of_lists(dev, ["good"] * len(dev)),
        test=None if test is None else source_of_lists(test, ["good"] * len(test)),
    )


def texts_of(folder: RunFolder, part: str, **overrides: Any) -> list[str]:
    """The documents of a store, spelled back from their pieces."""
    pieces = load_indexer(tiny.config(**overrides), folder).pieces
    store = Store.open(folder / f"encoded/{part}")
    lists = [ids for shard in range(store.shard_count) for ids in store.pieces(shard).to_lists()]
    return ["".join(pieces.fragments(ids)).strip() for ids in lists]


def test_unlabeled_documents_that_are_in_the_test_set_are_removed_and_counted(tmp_path: Path) -> None:
    """Whatever their case, spaces and signs; an empty text betrays nothing and stays."""
    raw = [*RAW, "SECRET,  test  One!", "secret test one", "Another secret", ""]
    test = ["Secret test one.", "another: secret", "not among them", ""]
    folder, counts = prepared(tmp_path / "run", corpus_of(raw, test))
    assert counts["removed"] == 3
    assert counts["unlabeled"] + counts["held_out"] == len(raw) - 3
    kept = texts_of(folder, "unlabeled") + texts_of(folder, "held_out")
    assert sorted(kept) == sorted([*RAW, ""])
    assert "secret" not in load_indexer(tiny.config(), folder).words.numbers


def test_emoji_of_the_test_set_are_removed_and_others_are_kept(tmp_path: Path) -> None:
    raw = [*RAW, "👍", "the film was ok 😀", "the film was ok 😡"]
    _, counts = prepared(tmp_path / "run", corpus_of(raw, ["👍", "The film was ok. 😀"]))
    assert counts["removed"] == 2
    assert counts["unlabeled"] + counts["held_out"] == len(RAW) + 1


def test_the_vocabularies_never_see_dev_or_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a dev file nor the dev share of the labeled documents."""
    monkeypatch.setattr("mein.text.words.MIN_DOCUMENTS", 1)
    corpus = corpus_of(RAW, ["onlytest onlytest"] * 9, dev=["onlydev onlydev"] * 9)
    folder, _ = prepared(tmp_path / "file", corpus)
    words = load_indexer(tiny.config(), folder).words
    assert {"onlydev", "onlytest"}.isdisjoint(words.numbers)
    assert {"number3", "sign3"} <= set(words.numbers)
    config, split = tiny.config(), corpus_of([])
    labeled = read_labeled(config, split)
    folder, _ = prepared(tmp_path / "split", split)
    known = set(load_indexer(config, folder).words.numbers)
    assert {t.split()[2] for t in labeled.train_texts} <= known
    assert {t.split()[2] for t in labeled.dev_texts}.isdisjoint(known)
    assert "onlytest" not in (tmp_path / "file" / "words.txt").read_text(encoding="utf-8")


def test_the_pieces_never_see_dev_or_test(tmp_path: Path) -> None:
    """The bytes of both models are those of a run without them."""
    with_them = corpus_of(RAW, ["zyx zyx zyx"] * 50, dev=["vwu vwu vwu"] * 50)
    without = corpus_of(RAW, dev=["text"])
    models = [
        (prepared(tmp_path / name, corpus)[0] / "pieces.model").read_bytes()
        for name, corpus in (("with", with_them), ("without", without))
    ]
    assert models[0] == models[1]


def test_the_held_out_slice_is_disjoint_complete_and_the_same_each_time(tmp_path: Path) -> None:
    raw = [f"raw text number{i}" for i in range(70)]
    folder, counts = prepared(tmp_path / "a", corpus_of(raw))
    kept, held_out = texts_of(folder, "unlabeled"), texts_of(folder, "held_out")
    assert (counts["held_out"], counts["unlabeled"]) == (7, 63)
    assert sorted(kept + held_out) == sorted(raw)
    assert held_out != raw[:7]
    assert held_out != raw[-7:]
    again, _ = prepared(tmp_path / "b", corpus_of(raw))
    assert texts_of(again, "held_out") == held_out
    other, _ = prepared(tmp_path / "c", corpus_of(raw), seed=1)
    assert texts_of(other, "held_out", seed=1) != held_out


@pytest.mark.parametrize(
    ("documents", "count"),
    [(1, 1), (2, 1), (9, 1), (20, 2), (20_000, 2_000), (20_001, 2_000), (10**6, 2_000)],
)
def test_a_tenth_is_held_out_one_at_least_and_2000_at_most(documents: int, count: int) -> None:
    rows = held_out_rows(documents, seed=0)
    assert len(np.unique(rows)) == len(rows) == count
    assert 0 <= rows.min() <= rows.max() < documents


def test_dev_is_disjoint_from_train_and_both_are_all() -> None:
    labeled = read_labeled(tiny.config(), corpus_of([]))
    assert sorted(labeled.train_texts + labeled.dev_texts) == sorted(LABELED)
    assert len(labeled.dev_texts) == 10
    named = dict(zip(LABELED, LABELS, strict=True))
    for texts, ids in ((labeled.train_texts, labeled.train_ids), (labeled.dev_texts, labeled.dev_ids)):
        assert [labeled.labels.classes[i] for i in ids] == [named[text] for text in texts]


def test_balanced_classes_weigh_the_same_in_sum() -> None:
    labeled = read_labeled(tiny.config(class_weight="balanced"), corpus_of([]))
    sums = np.bincount(labeled.train_ids, weights=labeled.train_weights)
    assert sums == pytest.approx([15.0, 15.0])  # 30 documents, 2 classes
    plain = read_labeled(tiny.config(), corpus_of([]))
    assert plain.train_weights.tolist() == [1.0] * 30


def test_sample_weights_follow_their_documents_through_the_split() -> None:
    corpus = replace(corpus_of([]), sample_weight=np.arange(40.0))
    labeled = read_labeled(tiny.config(), corpus)
    mean = np.mean([LABELED.index(text) for text in labeled.train_texts])
    for texts, weights in (
        (labeled.train_texts, labeled.train_weights),
        (labeled.dev_texts, labeled.dev_weights),
    ):
        rows = [LABELED.index(text) for text in texts]
        assert weights == pytest.approx(np.array(rows) / mean)


@pytest.mark.parametrize("kind", [None, "balanced"])
def test_an_empty_text_gets_each_class_s_share_of_train_as_its_texts_weigh(
    tmp_path: Path, kind: str | None
) -> None:
    """What classes weigh beside that changes nothing: it is how common they are."""
    corpus, weight_of = corpus_of([]), {"bad": 0.5, "good": 3.0}
    labeled = read_labeled(tiny.config(), corpus)
    named = [str(labeled.labels.classes[y]) for y in labeled.train_ids]
    folder, _ = prepared(tmp_path / "plain", corpus, class_weight=kind)
    assert folder.read_json("labels.json")["prior"] == [named.count(name) / 30 for name in weight_of]
    weights = np.array([weight_of[label] for label in LABELS])
    folder, _ = prepared(tmp_path / "weighed", replace(corpus, sample_weight=weights), class_weight=kind)
    shares = [named.count(name) * weight for name, weight in weight_of.items()]
    assert folder.read_json("labels.json")["prior"] == pytest.approx([part / sum(shares) for part in shares])


@pytest.mark.parametrize("raw", [RAW[:5], [*RAW, "one more"]])
def test_other_raw_text_after_a_kill_is_refused_until_it_is_restored(tmp_path: Path, raw: list[str]) -> None:
    whole, _ = prepared(tmp_path / "whole", corpus_of(RAW))
    folder, _ = prepared(tmp_path / "run", corpus_of(RAW))
    (folder / "prepared.json").unlink()
    shutil.rmtree(folder / "encoded")  # as a kill leaves it before the first shard
    sentence = rf"what the run in .*run began with: its number of documents is {len(raw)}, not 60; restore it"
    with pytest.raises(RunError, match=sentence):
        prepared(folder.path, corpus_of(raw))
    prepared(folder.path, corpus_of(RAW))
    assert texts_of(folder, "unlabeled") == texts_of(whole, "unlabeled")
    assert texts_of(folder, "held_out") == texts_of(whole, "held_out")


def test_remarks_know_one_from_many() -> None:
    names = ("silent", "empty", "removed", "train_in_test", "dev_in_test")
    one, many = (notes(dict.fromkeys(names, n)) for n in (1, 1_200))
    assert one[0] == "1 training document holds no word that the expert knows."
    assert one[1] == "1 document is empty: it is kept, and gets each class's share in training."
    assert one[2] == "1 unlabeled document is also in the test set: it is left out."
    assert one[4] == "1 dev document is also in the test set: its error will look too good."
    assert many[2] == "1,200 unlabeled documents are also in the test set: they are left out."
    assert notes(dict.fromkeys(names, 0)) == []


def other_label(corpus: Corpus) -> Corpus:
    return replace(corpus, labeled=source_of_lists(LABELED, [*LABELS[:-1], "good"]))


def other_text(corpus: Corpus) -> Corpus:
    return replace(corpus, labeled=source_of_lists([*LABELED[:-1], "x"], LABELS))


def other_weight(corpus: Corpus) -> Corpus:
    return replace(corpus, sample_weight=np.r_[np.ones(39), 2.0])


@pytest.mark.parametrize("change", [other_label, other_text, other_weight])
def test_the_digest_changes_with_each_label_text_and_weight(change: Callable[[Corpus], Corpus]) -> None:
    corpus, config = corpus_of([]), tiny.config(seed=3)
    labeled = read_labeled(config, corpus)
    assert labeled.digest == read_labeled(config, corpus).digest
    assert labeled.digest != read_labeled(config, change(corpus)).digest


def test_no_dev_document_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"No labels are left for validation: the dev file holds too few docum"
    ):
        read_labeled(tiny.config(), corpus_of([], dev=[]))
