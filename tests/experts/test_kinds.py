"""A kind of expert is declared once: what it declares is enough to train, evaluate, save, and load it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Generator, Tensor, nn

from mein import MeinClassifier
from mein.errors import ConfigError
from mein.evaluation.systems import MIXTURE
from mein.experts.base import Blueprint, Expert
from mein.experts.config import KINDS, ExpertConfig, Kind
from mein.model.loading import load_model
from mein.report.record import read_finished
from mein.runtime.tensors import load_tensors
from tests.support import tiny
from tests.support.shell import mein, refuses, write_csv

ROOT = Path(__file__).parents[2]
PRODUCT = sorted((ROOT / "mein").rglob("*.py")) + sorted((ROOT / "paper").rglob("*.py"))
NETWORKS = {"LSTMExpert", "AverageExpert", "TransformerExpert", "NgramExpert", "GivenExpert", "UserExpert"}
NAMES = tuple(KINDS)
TEXTS = tiny.TEXTS


class MaxExpert(Expert):
    """z = W max_t E x_t + b: all that a new kind needs, beside its entry in the table."""

    def __init__(self, vocabulary_size: int, dim: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.table = nn.Embedding(vocabulary_size, dim, padding_idx=0)
        self.output = nn.Linear(dim, classes)

    @classmethod
    def build(cls, blueprint: Blueprint) -> "MaxExpert":
        return cls(blueprint.vocabulary_size, blueprint.settings.embedding_dim, blueprint.classes)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        embedded: Tensor = self.table(words)
        return embedded

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        is_padding = torch.arange(embedded.shape[1]) >= lengths[:, None]
        z: Tensor = self.output(embedded.masked_fill(is_padding[..., None], -9.0).amax(1))
        return z

    @torch.no_grad()
    def start_from(self, pretrained: Tensor) -> None:
        STARTS.append(pretrained.shape)
        self.table.weight.copy_(pretrained)


STARTS: list[torch.Size] = []
MAX = Kind(
    "max",
    "a linear layer over the largest of each dimension",
    "tests.experts.test_kinds:MaxExpert.build",
    starts_from="vectors",
    trainings=("plain", "vat"),
    title="A maximum",
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "max", MAX)
    STARTS.clear()


# A new kind needs a class and an entry.


@pytest.mark.parametrize("training", MAX.trainings)
def test_a_new_kind_is_trained_evaluated_and_loaded(tmp_path: Path, training: str) -> None:
    rows = tiny.run(tmp_path / "run", expert__kind="max", expert__training=training)
    assert MIXTURE in [row.name for row in rows]
    model = load_model(tmp_path / "run", "cpu")
    expert = tiny.networks_of(model).expert
    assert isinstance(expert, MaxExpert)
    found = np.stack(pq.read_table(tmp_path / "run/predictions.parquet")[MIXTURE].to_numpy())
    assert_allclose(model.log_probs(TEXTS.test_texts), found, atol=1e-5)
    assert [expert.table.weight.shape] * 2 == STARTS  # it learns again from all labels
    trained = load_tensors(tmp_path / "run/expert.safetensors")[0]
    assert set(trained) == {"table.weight", "output.weight", "output.bias"}


def test_the_api_fits_saves_and_loads_a_new_kind(tmp_path: Path) -> None:
    settings = {**tiny.SETTINGS, "expert.kind": "max"}
    for own in ("runtime.device", "runtime.workers"):
        settings.pop(own)
    classifier = MeinClassifier(preset="small", settings=settings, device="cpu", random_state=1)
    classifier.fit(TEXTS.labeled_texts, TEXTS.labeled_labels, unlabeled=TEXTS.unlabeled_texts)
    classifier.save(tmp_path / "saved")
    loaded = MeinClassifier.load(tmp_path / "saved")
    assert isinstance(tiny.networks_of(loaded.model_).expert, MaxExpert)
    assert_allclose(loaded.predict_proba(TEXTS.test_texts), classifier.predict_proba(TEXTS.test_texts))


def test_the_shell_reports_and_predicts_with_a_new_kind(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", expert__kind="max")
    run = read_finished(tmp_path / "run")
    assert (run.learns_from_unlabeled, run.is_given, run.knows_labels_only) == (True, False, False)
    assert mein("report", tmp_path / "run").code == 0
    texts = write_csv(tmp_path / "texts.csv", TEXTS.test_texts)
    assert mein("predict", tmp_path / "run", texts, "--out", tmp_path / "out.csv").code == 0
    refuses(
        r"The expert of .* is 'max', which is no Hugging Face model: export a run of --preset transformer\.",
        *("export", tmp_path / "run", "--out", tmp_path / "exported"),
    )


def test_what_a_kind_does_not_declare_is_refused() -> None:
    for setting, value, sentence in (
        (
            "expert__training",
            "adv",
            r"^A maximum cannot be trained by 'adv': set expert\.training to plain\.$",
        ),
        ("expert__training", "ivat", r"^ivat needs embeddings of words, which 'max' lacks: "),
        ("expert__layers", 2, r"^expert\.layers applies to transformers only, not to 'max': "),
        ("expert__language_model", "somewhere", r"^expert\.language_model does not apply to 'max': "),
    ):
        with pytest.raises(ConfigError, match=sentence):
            tiny.config(expert__kind="max", **{setting: value})


def test_a_kind_that_nobody_declared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KINDS, "max")
    for kind in ("max", 3, ["lstm"]):
        with pytest.raises(ConfigError, match=r"^Setting expert\.kind is .*, but should be 'lstm', "):
            tiny.config(expert__kind=kind)


# The table of kinds.


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_names_a_network_that_is_there(kind: Kind) -> None:
    assert KINDS[kind.name] is kind
    assert callable(resolve_name(kind.network))


def test_the_setting_lists_every_kind() -> None:
    description = str(ExpertConfig.model_fields["kind"].description)
    assert tuple(part.split(":")[0] for part in description.split("; ")) == NAMES


# Nobody else knows kinds by name.


def knowledge_of_kinds(source: str) -> Iterator[str]:
    """Comparisons with the name of a kind, and anything that names the class of an expert."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            literals = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            is_schedule = "schedule" in ast.unparse(node)  # one of which is linear, as is a kind
            if any(value in NAMES for value in literals) and not is_schedule:
                yield f"line {node.lineno} compares with the name of a kind"
        named = {ast.alias: "name", ast.Name: "id", ast.Attribute: "attr"}.get(type(node))
        if named is not None and getattr(node, named) in NETWORKS:
            yield f"line {getattr(node, 'lineno', 0)} names {getattr(node, named)}"


@pytest.mark.parametrize(
    "source",
    [
        "is_so = config.expert.kind == 'frozen'",
        "is_so = settings['kind'] in ('lstm', 'average')",
        "match kind:\n    case 'given':\n        pass",
        "is_so = isinstance(expert, LSTMExpert)",
        "from mein.experts.average import AverageExpert",
    ],
)
def test_the_check_sees_a_test_of_a_kind(source: str) -> None:
    assert list(knowledge_of_kinds(source))


@pytest.mark.parametrize(
    "path",
    [path for path in PRODUCT if path.parent.name not in ("experts", "hub") and path.name != "folds.py"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_other_module_tests_for_a_kind(path: Path) -> None:
    assert not list(knowledge_of_kinds(path.read_text(encoding="utf-8")))


def test_all_networks_are_known_to_the_check() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "mein/experts").glob("*.py")]
    classes = [node for source in sources for node in ast.walk(ast.parse(source))]
    found = {node.name for node in classes if isinstance(node, ast.ClassDef) and _is_expert(node)}
    assert found == NETWORKS


def _is_expert(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Expert" for base in node.bases)
