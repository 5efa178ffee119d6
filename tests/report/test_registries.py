"""A control or a metric that is added to its registry appears in the table, the report and the card."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from mein.evaluation.metrics import METRICS, Metric
from mein.evaluation.rendering import render
from mein.evaluation.systems import SYSTEMS, System
from mein.report.card import card
from mein.report.page import page
from mein.report.record import read_finished
from tests.support import tiny

NOISE = System(
    "noise",
    "other noise",
    "tuned as the mixture is, with other noise",
    color=("#123456", "#abcdef"),
    evidence="random",
    is_fine_tuned=True,
)
COUNT = Metric("mistakes", "toy count", lambda p, y: float((p.argmax(axis=1) != y).sum()), short_title="toy")


def shown(path: Path) -> tuple[str, str, str]:
    """The terminal's table, the report, and the card of a tiny run."""
    rows, out = tiny.run(path), io.StringIO()
    Console(file=out, width=120, color_system=None).print(render(rows))
    run = read_finished(path)
    return out.getvalue(), page([run]), card(run)


def test_a_new_control_is_trained_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "noise", NOISE)
    table, html, markdown = shown(tmp_path / "run")
    assert (tmp_path / "run/noise.safetensors").exists()
    assert all(NOISE.title in text for text in (table, html, markdown))
    assert all(NOISE.meaning in text for text in (html, markdown))
    assert "<summary>Control: other noise" in html  # its learning curve
    assert ".noise{--system:#123456}" in html
    assert '<i class="dot noise">' in html


def test_a_new_metric_is_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "mistakes", COUNT)
    table, html, markdown = shown(tmp_path / "run")
    line = read_finished(tmp_path / "run").rows["mixture"].scores
    assert line["mistakes"] == pytest.approx(line.error * line.documents / 100)
    assert "toy" in table
    assert '<th scope="col">toy count</th>' in html
    assert "| toy count |" in markdown
    assert '{"type": "mistakes", "name": "Toy count", "value": ' in markdown
    assert all(f"{line['mistakes']:.3f}" in text for text in (table, html, markdown))
