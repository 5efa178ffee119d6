"""How each stage learned: what decides between epochs, and the losses beside it."""

from typing import Any

from mein.evaluation.table import MIXTURE
from mein.report.charts import Series, lines
from mein.report.reading import Finished
from mein.report.words import counted

STAGES = {  # as they are recorded: the heading and the colour
    "language_model": ("Before: the language model reads all training text", "other"),
    "expert": ("Stage 1: the expert learns from the labels", "expert"),
    "imitators": ("Stage 2: the imitators learn from the unlabelled text", "mixture"),
    MIXTURE: ("Stage 3: the mixture is tuned on the labels", "mixture"),
    "closed": ("Control: closed gates", "other"),
    "random": ("Control: random vectors", "other"),
}
NAMES = {
    "dev_error": "dev error, %",
    "dev_log_loss": "log-loss, nats",
    "document_loss": "loss on held-out documents, nats",
    "kl": "KL to their teacher by position, nats",
}
OWN = {"stage", "epoch", "loss", "seconds", "not_finite"}  # not of one stage alone, as its scores are


def curves(run: Finished, key: str) -> list[dict[str, Any]]:
    """A group of charts for each stage that was trained."""
    found = []
    for stage, (title, css) in STAGES.items():
        recorded = run.stage(stage)
        if recorded:
            charts = _charts(f"{key}-{stage}", recorded, title, css)
            epochs = counted(recorded[-1]["epoch"], "epoch")
            is_control = title.startswith("Control")
            found.append({"title": title, "charts": charts, "epochs": epochs, "is_control": is_control})
    return found


def _charts(key: str, recorded: list[dict[str, Any]], title: str, css: str) -> list[Any]:
    """One chart for each score; the first decides, so its lowest is marked."""
    charts = []
    for i, score in enumerate(name for name in recorded[0] if name not in OWN):
        points = [(line["epoch"], line[score]) for line in recorded if line[score] is not None]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        series = [Series("dev" if score == "dev_log_loss" else score, css, x, y)]
        if score == "dev_log_loss":
            losses = [(line["epoch"], line["loss"]) for line in recorded if line["loss"] is not None]
            if losses:
                series.append(Series("training", "raw", *zip(*losses, strict=True)))
        lowest = min(range(len(y)), key=lambda k: y[k]) if i == 0 else None
        name = NAMES.get(score, score.replace("_", " "))
        charts.append(lines(f"{key}-{score}", series, "epoch", name, f"{title}: {name}", lowest))
    return charts
