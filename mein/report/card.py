"""README.md of a run: a model card, with the metadata that the Hugging Face hub reads."""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mein.evaluation.systems import EXPERT, MIXTURE
from mein.report.charts import error_text, interval_text, p_value
from mein.report.page import environment
from mein.report.record import Finished, read_finished
from mein.runtime.files import write_atomically

MOST_CLASSES = 30
SIGNS = re.compile(r"([\\`*_\[\]#|<>~$])")


def write_card(path: Path, target: Path | None = None) -> None:
    """Write the card of a finished run, or of a classifier that was saved without its measurements."""
    text = card(read_finished(path))
    write_atomically(path / "README.md" if target is None else target, text.encode("utf-8"))


def card(run: Finished) -> str:
    """The card as text. A card is Markdown, so values are escaped by `md`, and as JSON in its head."""
    markdown = environment().overlay(autoescape=False)
    markdown.filters["md"] = as_markdown
    counts, rows = run.counts, run.rows
    return markdown.get_template("card.md").render(
        head=head(run),
        name=run.name,
        classes=run.classes[:MOST_CLASSES],
        more_classes=max(0, len(run.classes) - MOST_CLASSES),
        kind=run.config["expert"]["kind"],
        is_self_training=run.is_self_training,
        is_given=run.is_given,
        reads_raw_text=run.reads_raw_text,
        windows=run.windows,
        has_lexicon=run.lexicon_gate is not None,
        teaches_with_lexicon=run.teaches_with_lexicon,
        labeled=counts.get("train", 0),
        dev=counts.get("dev", 0),
        raw=counts.get("unlabeled", 0) + counts.get("held_out", 0),
        part=run.part,
        headline=run.headline.replace("->", "→"),
        rows=[
            (name, error_text(row), interval_text(row), f"{row.scores.macro_f1:.3f}",
             f"{row.scores.log_loss:.3f}", f"{row.scores.calibration_error:.3f}", p_value(row.p_value))
            for name, row in rows.items()
        ],
        documents=rows[run.best].scores.documents if rows else 0,
        version=run.provenance.get("versions", {}).get("mein", ""),
        seed=run.config["seed"],
        longest=run.config["words"]["max_length"],
    )  # fmt: skip


def head(run: Finished) -> str:
    """The YAML at the card's top; every value as JSON, which is YAML too and cannot break out."""
    lines = [
        "library_name: mein",
        "pipeline_tag: text-classification",
        "tags:",
        *("- " + tag for tag in ("mein", "text-classification", "semi-supervised-learning", "distillation")),
    ]
    best = run.rows.get(MIXTURE, run.rows.get(EXPERT))
    if best is None:
        return "\n".join(lines)
    scores = best.scores
    measured: list[tuple[str, str, float]] = [
        ("accuracy", "Accuracy", round(1 - scores.error / 100, 6)),
        ("f1", "Macro F1", round(scores.macro_f1, 6)),
        ("log_loss", "Log-loss", round(scores.log_loss, 6)),
        ("expected_calibration_error", "Calibration error (ECE)", round(scores.calibration_error, 6)),
    ]
    metrics = [{"type": kind, "name": name, "value": value} for kind, name, value in measured]
    source = run.data.get(run.part, run.data.get("labeled", ""))
    dataset = {"type": "custom", "name": _file_name(source) or "not named", "split": run.part}
    result = {"task": {"type": "text-classification"}, "dataset": dataset, "metrics": metrics}
    lines += ["metrics:", "- accuracy", "- f1", "model-index:"]
    return "\n".join([*lines, f"- name: {_json(run.name)}", f"  results: {_json([result])}"])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def _file_name(source: str) -> str:
    """The last part of a path or URL: the folders above it are nobody else's business."""
    return PurePosixPath(source.partition("?")[0]).name


def as_markdown(value: object) -> str:
    """A value as literal text in a line of Markdown.

    >>> as_markdown("<b>1 | 2</b>")
    '\\\\<b\\\\>1 \\\\| 2\\\\</b\\\\>'
    """
    text = " ".join(str(value).split()).replace("&", "&amp;")
    return SIGNS.sub(r"\\\1", text)
