"""The report: its figures are those of the run, it needs nothing but itself, and no text gets out of hand."""

import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mein.cli.report import report
from mein.data.corpus import Corpus, source_of_lists
from mein.errors import RunError, UsageError
from mein.evaluation.rendering import sentence_of
from mein.evaluation.systems import EXPERT, MIXTURE, TFIDF
from mein.model.artefacts import seal
from mein.report.card import card
from mein.report.charts import number, ticks
from mein.report.details import confusion, parts_of
from mein.report.page import page, write_report
from mein.report.record import read_finished
from mein.report.sections import _rate
from mein.runtime.provenance import provenance
from mein.runtime.run_folder import RunFolder
from tests.support import tiny
from tests.support.finished_runs import SCRIPT, fabricated

VOID = {"meta", "br", "input", "img", "link"}
LABELS = [SCRIPT, "two & two", "drei"]
WRONG = {TFIDF: np.arange(40), EXPERT: np.arange(60), MIXTURE: np.arange(50, 62)}  # of 120


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes; of 120 documents the expert gets 60 wrong and the mixture 12, 2 of them anew."""
    path = fabricated(tmp_path_factory.mktemp("runs") / "three", LABELS, 40, WRONG)
    RunFolder(path).write_json("provenance.json", provenance(["/bin/mein", "train", "--labeled", "a b.csv"]))
    return path


@pytest.fixture(scope="module")
def html(finished: Path) -> str:
    return written([finished], finished.parent / "page.html")


def written(paths: list[Path], target: Path) -> str:
    write_report(paths, target)
    text = target.read_text(encoding="utf-8")
    Balanced().check(text)
    return text


class Balanced(HTMLParser):
    """Every tag is closed, ids are unique, links stay on the page, and pictures have descriptions."""

    def check(self, text: str) -> None:
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: dict[str, int] = {}
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)
        assert {link.removeprefix("#") for link in self.links} <= set(self.ids)
        assert not self.tags.keys() & {"script", "img", "b1", "link", "iframe", "object", "embed", "base"}
        assert text.count('role="img"') == self.tags["svg"] == self.tags["desc"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "style", "action"), (tag, name)
            if name == "id":
                self.ids.append(str(value))
            if name == "href":
                assert str(value).startswith("#")
                self.links.append(str(value))
        if tag not in VOID and not str(self.get_starttag_text()).endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:  # <line/> is reported as an end too
            assert self.open.pop() == tag


def texts_of(html: str) -> str:
    """What a reader sees, white space folded."""
    words = re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.S))
    return " ".join(unescape(words).split())


@pytest.mark.parametrize(
    ("kind", "training", "labels_only"),
    [
        ("lstm", "plain", True),
        ("lstm", "adv", True),
        ("lstm", "vat", False),
        ("average", "plain", False),
        ("transformer", "plain", False),
        ("frozen", "plain", False),
        ("given", "plain", False),
    ],
)
def test_only_an_expert_without_pre_training_knows_labels_only(
    finished: Path, kind: str, training: str, labels_only: bool
) -> None:
    run = read_finished(finished)
    expert = run.config["expert"] | {"kind": kind, "training": training}
    html = page([replace(run, config=run.config | {"expert": expert})])
    assert ("which was trained on labels only" in html) == labels_only


def first_screen(html: str) -> str:
    """The text of the first section."""
    section = re.search(r'<section class="hero.*?</section>', html, re.S)
    assert section is not None
    return texts_of(section[0])


def test_the_first_screen_is_for_a_decision(html: str) -> None:
    """40 of 120, 60 and 12: what to use, both errors, how sure, and what the unlabeled text gave."""
    text = first_screen(html)
    places = [
        text.index(words)
        for words in (
            "Evaluated on 120 test documents",
            "Use this model",
            "It has measurably fewer errors than the best baseline, TF-IDF + logistic regression.",
            "This model 10.0 % error 95% interval 5.8–16.7 about 1 label in 10 is wrong",
            "TF-IDF + logistic regression 33.3 % error 95% interval 25.5–42.2 about 1 label in 3 is wrong",
            "The model is 23.3 points better than the baseline (95% interval +",
            "; p = 0.0001), on 120 test documents.",
            "The unlabeled text helped: 50.0% error without it (p < 0.0001).",
            "Careful. Only large differences are measurable on 120 documents.",
        )
    ]
    assert places == sorted(places)
    for word in ("expert", "mixture", "gate", "control", "logit", "McNemar", "spoke", "mended", "newly"):
        assert word not in text, word
    assert html.index("For researchers</h2>") < html.index("Comparison with its controls")


@pytest.mark.parametrize(
    ("wrong", "heading", "reason"),
    [
        (
            {TFIDF: np.arange(10), MIXTURE: np.arange(40)},
            "Use the baseline",
            "TF-IDF + logistic regression has measurably fewer errors than the model.",
        ),
        (
            {TFIDF: np.arange(40), MIXTURE: np.arange(5, 41)},
            "Get more labels",
            "There are too few test documents to tell whether the model beats TF-IDF + logistic regression.",
        ),
        (
            {TFIDF: np.arange(40), MIXTURE: np.arange(40)},
            "Use the baseline",
            "The model is no better than TF-IDF + logistic regression, which is simpler.",
        ),
    ],
    ids=["worse", "too few", "equal"],
)
def test_the_first_screen_card_and_comparison_advise_the_same(
    tmp_path: Path, wrong: dict[str, np.ndarray], heading: str, reason: str
) -> None:
    path = fabricated(tmp_path / "run", LABELS, 40, wrong | {EXPERT: np.arange(60)})
    html = written([path], tmp_path / "page.html")
    text = first_screen(html)
    assert heading in text
    assert reason in text
    assert "In scikit-learn: TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)" in text
    run = read_finished(path)
    assert run.verdict is not None
    assert f"**{heading}.** {sentence_of(run.verdict)}" in card(run).replace("\\", "")
    assert f'<small class="kept">{heading}</small>' in written([path, path], tmp_path / "two.html")


def test_a_class_that_is_never_predicted_is_a_caution(tmp_path: Path) -> None:
    """Every third document has the last of the sorted labels."""
    missed = np.arange(2, 120, 3)
    path = fabricated(tmp_path / "run", LABELS, 40, {EXPERT: np.arange(60), MIXTURE: missed})
    text = first_screen(written([path], tmp_path / "page.html"))
    assert "Careful. The model never predicts two & two, the label of 40 test documents." in text
    path = fabricated(tmp_path / "all", LABELS, 40, {EXPERT: np.arange(60), MIXTURE: missed[1:]})
    assert "never predicts" not in first_screen(written([path], tmp_path / "page.html"))


def test_the_controls_show_how_many_labels_changed(html: str) -> None:
    text = texts_of(html)
    # 60 of 120 and 12 of 120; rows 50 to 59 are wrong in both, 60 and 61 in the mixture alone
    assert "Of 120 test documents the expert got 60 wrong, the mixture 12: 50 corrected, 2 broken." in text
    assert "The mixture changes the label of 52 evaluated documents." in text


def test_the_table_holds_the_recorded_verdict(finished: Path, html: str) -> None:
    table = re.search(r'aria-label="Table of controls".*?</table>', html, re.S)
    assert table is not None
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table[0], re.S)[1:]
    lines = [line for line in RunFolder(finished).metrics("verdict") if "system" in line]
    assert len(rows) == len(lines) == 4
    for row, line in zip(rows, lines, strict=True):
        cells = [texts_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
        assert cells[0] == line["title"]
        assert cells[1].split()[0] == f"{line['error']:.1f}"
        assert cells[2] == f"{line['interval'][0]:.1f}–{line['interval'][1]:.1f}"
        assert cells[7:] == [f"{line[name]:.3f}" for name in ("macro_f1", "log_loss", "calibration_error")]
        if line["system"] == EXPERT:
            low, high = line["difference"]["low"], line["difference"]["high"]
            assert cells[4:7] == ["+40.0", f"+{low:.1f} to +{high:.1f}", "<0.0001"]


def test_the_confusion_matrix_counts_the_predictions(finished: Path, html: str) -> None:
    table = pq.read_table(finished / "predictions.parquet")
    wanted = np.zeros((3, 3), int)
    for label, log_probs in zip(table["label"].to_pylist(), table[MIXTURE].to_pylist(), strict=True):
        wanted[label, max(range(3), key=log_probs.__getitem__)] += 1
    run = read_finished(finished)
    assert (confusion(run.label_ids, run.log_probs(MIXTURE).argmax(1), 3) == wanted).all()
    picture = re.search(r"<title[^>]*>Confusion matrix of mixture.*?</svg>", html, re.S)
    assert picture is not None
    counts = re.findall(r'class="count[^"]*"[^>]*>([\d,]+)<', picture[0])
    assert [int(count) for count in counts] == wanted.ravel().tolist()


def test_calibration_is_shown_before_and_after(finished: Path, html: str) -> None:
    run = read_finished(finished)
    p = np.exp(run.log_probs(MIXTURE))
    raw = p**run.temperature / (p**run.temperature).sum(1, keepdims=True)  # softmax of logits, by hand
    np.testing.assert_allclose(np.exp(run.uncalibrated()), raw, atol=1e-9)
    shown = []
    for probs in (raw, p):
        confidence, is_right = probs.max(1), probs.argmax(1) == run.label_ids
        which = np.ceil(confidence * 15)
        bins = [which == b for b in np.unique(which)]
        shown.append(sum(b.sum() * abs(is_right[b].mean() - confidence[b].mean()) for b in bins) / len(p))
    assert f"of the mixture from {shown[0]:.3f} to {shown[1]:.3f}" in texts_of(html)


def test_risk_is_the_error_of_the_most_confident(finished: Path, html: str) -> None:
    run = read_finished(finished)
    confidence = run.log_probs(MIXTURE).max(1)
    surest = np.argsort(-confidence)[:60]
    wrong = np.mean(run.log_probs(MIXTURE).argmax(1)[surest] != run.label_ids[surest])
    assert f"{100 * wrong:.1f}% of the most confident 50%" in texts_of(html)
    assert "and 10.0% of all" in texts_of(html)


def test_rates_count_the_documents_that_a_step_read(finished: Path) -> None:
    """Labeled text too, where imitators read it, and no more of the other than was drawn."""
    run = read_finished(finished)
    raw, held_out, train = (run.counts[part] for part in ("unlabeled", "held_out", "train"))
    lines = [{"stage": "imitators", "epoch": epoch, "seconds": 0.5} for epoch in (0, 1)]
    for given, labeled, learned in (
        ({"reads_labeled": False}, raw + held_out, raw),
        ({"reads_labeled": True}, raw + held_out + train, raw + train),
        ({"reads_labeled": True, "documents": 5}, raw + held_out + train, 5 + train),
    ):
        settings = run.config | {"imitator_training": run.config["imitator_training"] | given}
        asked = replace(run, config=settings, lines=[run.stage("data")[0], *lines])
        assert _rate(asked, "labeling", 1.0) == f"{number(labeled)} documents/s"
        assert _rate(asked, "imitators", 1.0) == f"{number(learned)} documents/s"


def test_gates_are_shown_signed_and_calibrated(finished: Path, html: str) -> None:
    run = read_finished(finished)
    table = re.search(r'aria-label="Gates".*?</table>', html, re.S)
    assert table is not None
    text = texts_of(table[0])
    assert f"expert +{1 / run.temperature:.3f}" in text
    for c, gate in zip(run.windows, run.gates, strict=True):
        both = [f"{'−' if value < 0 else '+'}{abs(value):.3f}" for value in (gate, gate / run.temperature)]
        assert f"c = {c} {both[0]} {both[1]}".replace("−0.000", "+0.000") in text


def test_a_text_cannot_leave_its_place(html: str) -> None:
    assert SCRIPT not in html
    assert "&lt;script&gt;" in html  # as a label and in the documents
    assert "<b>0</b> &" not in html
    assert "/home/me/&lt;b&gt;test.csv" in html
    assert "secret" not in html
    assert "key=" not in html


def test_the_page_loads_nothing(html: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "url(" not in html
    assert "@import" not in html
    outside = re.findall(r"https?://[^\s\"'<]+", html)
    assert {address for address in outside if "host/a.csv" not in address} == set()  # a name in the data


def test_pictures_are_wellformed_and_described(html: str) -> None:
    pictures = re.findall(r"<svg.*?</svg>", html, re.S)
    assert len(pictures) > 10
    for picture in pictures:
        root = ET.fromstring(picture)
        title, description = root[0].text, root[1].text
        assert title
        assert description
        assert re.search(r"\d", description)
        assert not re.search(r"\b(nan|inf|None)\b", picture)


def test_the_same_folder_gives_the_same_bytes(finished: Path, html: str, tmp_path: Path) -> None:
    assert written([finished], tmp_path / "again.html") == html
    moved = shutil.copytree(finished, tmp_path / "elsewhere" / "three")
    shutil.rmtree(moved / "encoded")
    assert written([moved], tmp_path / "moved.html") == html


def test_fragments_and_documents_are_shown(finished: Path, html: str) -> None:
    highlights = RunFolder(finished).read_json("highlights.json")
    kinds = [document["kind"] for document in highlights["changed"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {"corrected": 12, "broken": 2}
    assert "50 documents, the most confident 12 shown" in texts_of(html)
    article = re.search(r'<article class="document corrected">.*?</article>', html, re.S)
    assert article is not None
    first = highlights["changed"][0]
    text = re.search(r'<p class="text"[^>]*>(.*?)</p>', article[0], re.S)
    assert text is not None
    shown = re.sub(r"</?mark[^>]*>", "", text[1])
    assert shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == first["text"]
    for table in highlights["fragments"]:
        for one in table["best"]:
            assert 1 <= one["documents"] <= one["occurrences"]


def test_the_command_and_the_versions_are_there(html: str) -> None:
    assert "mein train --labeled &#39;a b.csv&#39;" in html
    assert re.search(r"torch</th><td>2\.", html)
    assert "imitators.channels" in html


def test_several_runs_stand_side_by_side(finished: Path, tmp_path: Path) -> None:
    other = shutil.copytree(finished, tmp_path / "three")  # the same name in another folder
    config = other / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"seed": 0', '"seed": 7'), encoding="utf-8")
    seal(RunFolder(other))
    text = texts_of(written([finished, other], tmp_path / "two.html"))
    assert "2 runs compared" in text
    assert f"{tmp_path.name}/three" in text
    assert "These runs differ in their seed only" in text
    assert re.search(r"mixture 10\.0 0\.00", text)  # mean and spread of twice the same
    assert "seed 0 7" in text


def test_the_lowest_error_is_marked_among_runs_evaluated_on_the_same_documents(
    finished: Path, tmp_path: Path
) -> None:
    """Two runs on 120 documents, the second without a mistake; one on 3 of its own, without one too."""
    better = fabricated(tmp_path / "better", LABELS, 40, {EXPERT: np.arange(60)})
    few = fabricated(tmp_path / "few", LABELS, 1, {})
    together = written([finished, better], tmp_path / "a.html")
    assert leaders(together) == ["better"]
    assert "shares them with no other" not in together
    apart = written([finished, better, few], tmp_path / "b.html")
    assert leaders(apart) == ["better"]
    assert "a run that shares them with no other has no mark" in texts_of(apart)
    assert leaders(written([finished, few], tmp_path / "c.html")) == []


def leaders(html: str) -> list[str]:
    """The marked runs of the comparison."""
    return re.findall(r'<tr class="lead"><th scope="row"><a href="#run-\d">(.*?)</a>', html)


def test_the_runs_of_several_seeds_are_shown_together(finished: Path, tmp_path: Path) -> None:
    for seed in (9, 10):
        shutil.copytree(finished, tmp_path / "five" / f"seed-{seed}")
    report([tmp_path / "five"])
    text = texts_of((tmp_path / "five" / "report.html").read_text(encoding="utf-8"))
    assert "2 runs compared" in text
    assert text.index("seed-9") < text.index("seed-10")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seconds"', '"sdconds"'),
        ('"stage"', '"stbge"'),
        ('"epoch"', '"epocj"'),
        ('"dev_error"', '"dev_errov"'),
        ('"stage"', '"stage'),
    ],
)
def test_damaged_measurements_are_one_sentence(finished: Path, tmp_path: Path, old: str, new: str) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    metrics = path / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines()
    place = max(n for n, line in enumerate(lines) if old in line)
    lines[place] = lines[place].replace(old, new)
    metrics.write_text("\n".join([*lines, ""]), encoding="utf-8")
    seal(RunFolder(path))  # as a foreign program might have
    with pytest.raises(RunError, match=r"run(/metrics\.jsonl)? is damaged \(.*\): restore it from a copy\.$"):
        write_report([path], tmp_path / "page.html")


def test_damaged_predictions_are_one_sentence(finished: Path, tmp_path: Path) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    table = pq.read_table(path / "predictions.parquet")
    renamed = table.rename_columns(["lable", *table.column_names[1:]])
    for other in (renamed, table.drop_columns([MIXTURE]), table.slice(1)):
        pq.write_table(other, path / "predictions.parquet")
        seal(RunFolder(path))
        with pytest.raises(RunError, match=r"predictions\.parquet is damaged, or belongs to another run"):
            write_report([path], tmp_path / "page.html")


def test_a_run_without_unlabeled_text_is_shown_as_such(tmp_path: Path) -> None:
    texts = tiny.TEXTS
    labeled = source_of_lists(texts.labeled_texts, texts.labeled_labels)
    tiny.run(tmp_path / "plain", Corpus(labeled=labeled))  # and without a test set
    text = texts_of(written([tmp_path / "plain"], tmp_path / "page.html"))
    assert "Trained on labels only" in text
    assert "Careful. There was no test set" in text
    assert "Weights of the components" not in text
    assert "imitators none" in text


def test_a_hundred_classes_give_the_most_frequent_mistakes(tmp_path: Path) -> None:
    names = [f"class {y:02}" for y in range(100)]
    wrong = {EXPERT: np.arange(150), MIXTURE: np.concatenate([np.arange(5), [5, 105, 205, 305]])}
    path = fabricated(tmp_path / "hundred", names, 4, wrong)
    html = written([path], tmp_path / "page.html")
    assert "Confusion matrix" not in html
    assert "class 05 class 06 4 100.0" in texts_of(html)  # all of its documents
    assert "and 88 more" in texts_of(html)
    assert len(html) < 2_000_000


def test_a_run_that_was_not_evaluated_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no run folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "page.html")
    half = shutil.copytree(finished, tmp_path / "half")
    (half / "done").unlink()
    with pytest.raises(RunError, match="is not finished"):
        write_report([half], tmp_path / "page.html")
    (half / "metrics.jsonl").unlink()
    shutil.copy(finished / "done", half)
    with pytest.raises(RunError, match=r"metrics\.jsonl is missing: restore it from a copy of the run"):
        write_report([half], tmp_path / "page.html")


def test_the_command_prints_where_the_page_is(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([finished])
    assert "report.html" in "".join(capsys.readouterr().out.split())
    assert (finished / "report.html").exists()
    with pytest.raises(UsageError, match="add --out FILE"):
        report([finished, finished])


def test_marks_add_up_to_the_text_and_ticks_cover_the_range() -> None:
    assert "".join(part for part, _ in parts_of("a bad day", [[2, 5, -3.0], [6, 9, 0.1]])) == "a bad day"
    for low, high in [(0, 1), (0, 0), (3.2, 3.2), (-29.6, 12), (0.45, 0.63), (0, 12345)]:
        found = ticks(low, high)
        assert found[0] <= low
        assert found[-1] >= high
        assert 2 <= len(found) <= 8
