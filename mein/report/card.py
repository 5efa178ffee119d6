"""README.md of a run: a model card, with the metadata that the Hugging Face hub reads."""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mein.evaluation.metrics import metrics_beside_error
from mein.evaluation.rendering import ADVICE, cells, footnote, headings, sentence_of
from mein.evaluation.systems import EXPERT, MIXTURE, SYSTEMS
from mein.report.page import NOT_IN_HTML, REPLACEMENT, environment
from mein.report.record import Finished, explaining_damage, read_finished
from mein.runtime.files import write_atomically

MOST_CLASSES = 30
SIGNS = re.compile(r"([\\`*_\[\]#|<>~$])")


def write_card(path: Path, target: Path | None = None) -> None:
    """Write the card of a finished run, or of a classifier that was saved without its measurements."""
    with explaining_damage(path):
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
        is_trained_on_unlabeled=run.learns_from_unlabeled,
        windows=run.windows,
        has_lexicon=run.lexicon_gate is not None,
        teaches_with_lexicon=run.teaches_with_lexicon,
        labeled=counts.get("train", 0),
        dev=counts.get("dev", 0),
        unlabeled=counts.get("unlabeled", 0) + counts.get("held_out", 0),
        part=run.part,
        about_dev=run.about_dev,
        advice="" if run.verdict is None else ADVICE[run.verdict.advice],
        verdict="" if run.verdict is None else sentence_of(run.verdict),
        headings=["system", *headings(run.best)],
        rows=[(row.title, *cells(row)) for row in rows.values()],
        footnote=footnote(is_approximate=run.part == "labeled"),
        meanings=[(row.title, SYSTEMS[name].meaning) for name, row in rows.items() if name in SYSTEMS],
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
    metrics = [{"type": "accuracy", "name": "Accuracy", "value": round(1 - best.scores.error / 100, 6)}]
    for metric in [metric for metric in metrics_beside_error() if metric.name in best.scores.values]:
        title = metric.title[0].upper() + metric.title[1:]
        value = round(best.scores[metric.name], 6)
        metrics.append({"type": metric.hub_type or metric.name, "name": title, "value": value})
    source = run.data.get(run.part, run.data.get("labeled", ""))
    dataset = {"type": "custom", "name": _file_name(source) or "not named", "split": run.part}
    result = {"task": {"type": "text-classification"}, "dataset": dataset, "metrics": metrics}
    lines += ["metrics:", "- accuracy", "- f1", "model-index:"]
    return "\n".join([*lines, f"- name: {_json(run.name)}", f"  results: {_json([result])}"])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def _file_name(source: str) -> str:
    """The last part of a path or URL: the folders above it stay private."""
    return PurePosixPath(source.partition("?")[0]).name


def as_markdown(value: object) -> str:
    """A value as literal text in a line of Markdown.

    >>> as_markdown("<b>1 | 2</b>")
    '\\\\<b\\\\>1 \\\\| 2\\\\</b\\\\>'
    """
    text = NOT_IN_HTML.sub(REPLACEMENT, " ".join(str(value).split())).replace("&", "&amp;")
    return SIGNS.sub(r"\\\1", text)
