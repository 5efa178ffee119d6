"""A finished run, read from its folder: all that the report and the card are made from."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import TemplateError

from mein.errors import RunError
from mein.evaluation.comparison import Row, Verdict
from mein.evaluation.metrics import apply_temperature
from mein.evaluation.systems import EXPERT, MIXTURE
from mein.experts.config import KINDS, Kind, learns_from_unlabeled
from mein.mixture.gates import Weights
from mein.model.artefacts import damaged, read_done, verify
from mein.runtime.provenance import without_credentials
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_facts


@dataclass(frozen=True)
class Finished:
    """A finished run; what was not measured is empty."""

    path: Path
    config: dict[str, Any]
    data: dict[str, str]
    classes: list[str]
    prior: np.ndarray
    lines: list[dict[str, Any]]
    """metrics.jsonl."""
    gates: list[float]
    lexicon_gate: float | None
    """None without a lexicon."""
    temperature: float
    is_refitted: bool
    """Whether its networks learned again from all labels, for those that predict."""
    highlights: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """What to call the run: its folder's name."""
        return self.path.resolve().name

    def stage(self, name: str) -> list[dict[str, Any]]:
        """What one stage recorded."""
        return [line for line in self.lines if line["stage"] == name]

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many documents each part holds."""
        return {k: v for line in self.stage("data") for k, v in line.items() if k != "stage"}

    @cached_property
    def rows(self) -> dict[str, Row]:
        """The table of the verdict, by system."""
        found = (Row.from_dict(line) for line in self.stage("verdict") if "system" in line)
        return {row.name: row for row in found}

    @cached_property
    def verdict(self) -> Verdict | None:
        """What the comparison showed; none where nothing was measured."""
        found = (Verdict.from_dict(line) for line in self.stage("verdict") if "outcome" in line)
        return next(found, None)

    @property
    def traits(self) -> Kind:
        """What the kind of its expert declares."""
        return KINDS[self.config["expert"]["kind"]]

    @property
    def is_self_training(self) -> bool:
        """Whether its expert also learned from another run."""
        return self.config["expert"].get("from_run") is not None

    @property
    def learns_from_unlabeled(self) -> bool:
        """Whether its expert learned from the unlabeled text itself, without imitators."""
        return bool(self.gates) and learns_from_unlabeled(self.traits, self.config["expert"]["training"])

    @property
    def is_given(self) -> bool:
        """Whether its expert's probabilities were given, so that it learned nothing here."""
        return not self.traits.learns

    @property
    def knows_labels_only(self) -> bool:
        """Whether its expert has learned from these labels and nothing else."""
        return not (self.traits.is_pretrained or self.is_self_training or self.learns_from_unlabeled)

    @property
    def teaches_with_lexicon(self) -> bool:
        """Whether the imitators' teacher was the expert with the lexicon, not the expert by itself."""
        reads_labeled = self.config["imitator_training"]["reads_labeled"]
        has_learned = not (self.is_given or self.traits.has_encoder)
        return reads_labeled and self.lexicon_gate is not None and has_learned

    @property
    def expert(self) -> str:
        """What the expert is, in one line."""
        settings = self.config["expert"]
        also = f", self-training from {settings['from_run']}" if self.is_self_training else ""
        return f"{settings['kind']}, {settings['training']} training{also}"

    @property
    def part(self) -> str:
        """What it was evaluated on: test, dev, or all labeled documents."""
        return next((line["part"] for line in self.stage("verdict") if "part" in line), "test")

    @property
    def about_dev(self) -> str:
        """What to know about figures on the dev documents."""
        these = "There was no test set: these are the dev documents"
        if self.traits.is_fitted:
            return f"{these}, which chose nothing."
        if self.is_refitted:
            return (
                f"{these}, on which everything was selected, by networks that did not learn from them. "
                "Those that predict learned from all labels."
            )
        return f"{these}, on which everything was selected."

    @property
    def best(self) -> str:
        """The system that `predict` uses."""
        return MIXTURE if MIXTURE in self.rows else EXPERT

    @property
    def windows(self) -> list[int]:
        """c_i of each imitator; none where there was no unlabeled text."""
        return self.config["imitators"]["windows"] if self.gates else []

    @property
    def weights(self) -> list[tuple[str, float]]:
        """The calibrated weight of each component: 1 / T for the expert, g / T for the others."""
        components = [("expert", 1.0)] + (
            [] if self.lexicon_gate is None else [("lexicon", self.lexicon_gate)]
        )
        components += [(f"c={c}", gate) for c, gate in zip(self.windows, self.gates, strict=True)]
        return [(name, gate / self.temperature) for name, gate in components]

    @cached_property
    def predictions(self) -> pa.Table:
        """One row per evaluated document."""
        path = self.path / "predictions.parquet"
        try:
            table = pq.read_table(path)
        except FileNotFoundError as problem:
            raise RunError(
                f"{self.path} holds a classifier without its measurements, predictions.parquet is missing: "
                "give the folder that `mein train --out` wrote."
            ) from problem
        except (OSError, pa.ArrowException) as problem:
            raise damaged(path) from problem
        is_complete = {"label", *self.rows} <= set(table.column_names)
        if not is_complete or {row.scores.documents for row in self.rows.values()} - {table.num_rows}:
            raise damaged(path)
        Y, kinds = len(self.classes), dict(zip(table.column_names, table.schema.types, strict=True))
        has_lists = all(
            pa.types.is_fixed_size_list(kinds[name])
            and pa.types.is_floating(kinds[name].value_type)
            and kinds[name].list_size == Y
            for name in self.rows
        )
        ids = table["label"]
        are_ids = pa.types.is_integer(kinds["label"]) and not ids.null_count
        if not (has_lists and are_ids and all(0 <= y < Y for y in ids.unique().to_pylist())):
            raise damaged(path)
        return table

    @cached_property
    def label_ids(self) -> np.ndarray:
        """The true class of each evaluated document (n,)."""
        ids: np.ndarray = self.predictions["label"].to_numpy()
        return ids

    def log_probs(self, system: str) -> np.ndarray:
        """log p(y | X) (n, Y), calibrated."""
        flat = self.predictions[system].combine_chunks().flatten().to_numpy()
        log_probs: np.ndarray = flat.astype(np.float64).reshape(len(self.label_ids), -1)
        return log_probs

    def uncalibrated(self) -> np.ndarray:
        """log p(y | X) (n, Y) of what `predict` uses, as if the temperature were 1.

        A document without a known word has the classes' shares, whatever the temperature.
        """
        calibrated = self.log_probs(self.best)
        raw = apply_temperature(calibrated * self.temperature, 1.0)
        with np.errstate(divide="ignore"):  # a class may have no share
            log_prior = np.log(self.prior)
        is_empty = np.isclose(calibrated, log_prior, rtol=0, atol=1e-6).all(axis=1)
        return np.where(is_empty[:, None], calibrated, raw)


def read_finished(path: Path) -> Finished:
    """The run in a folder; refuse one that is not finished."""
    folder = RunFolder(path)
    done = read_done(folder)
    verify(folder, done.required, ["config.json", "labels.json", "mixture.safetensors"])
    verify(folder, done.listed, done.listed)
    identity, labels = folder.read_json("config.json"), folder.read_json("labels.json")
    facts = load_facts(path / "mixture.safetensors")
    optional = {
        name: folder.read_json(f"{name}.json") if (folder / f"{name}.json").exists() else {}
        for name in ("highlights", "provenance")
    }
    with explaining_damage(path):
        weights = Weights.from_facts(facts)
        run = Finished(
            path=path,
            config=identity["config"],
            data={part: without_credentials(name) for part, name in identity.get("data", {}).items()},
            classes=[str(label) for label in labels["classes"]],
            prior=np.array(labels["prior"], np.float64),
            lines=folder.metrics(),
            gates=weights.gates.tolist(),
            lexicon_gate=weights.lexicon,
            temperature=weights.temperature,
            is_refitted=weights.epochs is not None,
            **optional,
        )
        is_share = run.prior.shape == (len(run.classes),) and bool((run.prior >= 0).all())
        if not (is_share and np.isclose(run.prior.sum(), 1.0)):
            raise ValueError("labels.json")
        run.traits  # noqa: B018 - like the next line, read here, where damage can be explained
        if run.rows and run.verdict is None:
            raise KeyError("outcome")
    return run


@contextmanager
def explaining_damage(path: Path) -> Iterator[None]:
    """Turn what is missing or malformed in a run's files into one sentence."""
    try:
        yield
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        TemplateError,
    ) as problem:
        raise RunError(f"{path} is damaged ({problem!r:.200}): restore it from a copy.") from problem
