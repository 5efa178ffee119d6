"""The tables and figures of docs/results.md, made from result lines: mein's beside the paper's.

The table of speed comes from the JSON of `python -m benchmarks experts` and `imitators`.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import read_figures
from benchmarks.pictures import COLORS, standalone
from mein.evaluation.significance import paired_bootstrap
from mein.report.charts import Figure, Scale, tick_text, ticks
from paper.cells import AMOUNTS, MORE_DATA, REMOVED_WINDOWS, RESULTS, SPEED, VARIANTS, WINDOW_SETS, WINDOWS
from paper.lines import Line, cell_of, correct_of, experts_of, of_the_same_seeds

TITLES = {
    "plain": "expert",
    "closed": "expert, fine-tuned",
    "random": "+ random IMN",
    "imn-paper": "+ IMN, the paper's gates",
    "imn": "+ IMN, free gates",
    "closed-lexicon": "expert + lexicon, fine-tuned",
    "imn-lexicon": "+ IMN, free gates, lexicon",
}
HEAD = """# Results

Made by `python -m paper page` from the lines under `results/`; do not edit.

**Cells**

- A cell is the test error in %: mean over seeds ± standard deviation, [number of seeds], (the paper's
  figure).
- IMN: imitators. `expert, fine-tuned` (closed gates) is the mixture without imitators.
- A star: better than the expert **and** than the fine-tuned expert **and** than random imitators, each with
  p < 0.05 in a paired bootstrap over documents, seeds pooled.
- With a lexicon a star also requires a lower error than free gates without one **and** than the fine-tuned
  expert with one.
- Everything was selected on dev; test labels were read once, at the end of each run.
- A cell may have fewer seeds than the one beside it.

**Lines**

- Each line under `results/` has its seed and its command, which reproduces it.
- A plus behind a commit, as in `78aedbe+`, means that the package's files differed from that commit. The
  differences are not recorded.
- **Rows differ in settings**: if the command has `words.max_length=400`, the expert used the last 400 words
  of a document, otherwise the last 1,000.
- With the preset full the two kinds of gates differ in stage 3 only.

**What differs from the paper** ([paper.md](paper.md), and why: [log](../log/README.md))

- Free gates are fitted on dev, and evidence is centered.
- Imitators start nearer zero and learn at a rate that falls to 0.
- A lexicon is n-gram log-odds: logistic regression on pieces, pairs, and triples of them, learned from the
  labels, with a gate of its own. A lexicon of train fits the gate on dev. On test the lexicon has learned
  dev's labels too; columns without one have not.

**Data sets**

- `imdb-150k` is IMDB with 100,000 more reviews in its file of unlabeled text.
- `imdb-400` is a copy of IMDB's folder, where ADV used the last 400 words; the paper's figures are under
  `imdb`.
- `electronics` follows Elec's recipe but is not Elec, and `r52` replaces RCV1: the paper has no figures for
  these two.
- On `rotten` each seed is a split of its own, so rows differ in their test documents: `transformer` has
  seeds 3 to 5, `transformer-student` 6 to 8, other rows 0.

**Rows**

- IMDB's LSTM had one more seed, whose lines are lost: 10.00, with the paper's gates 9.59, with free gates
  7.98.
- IMDB's seeds of LM-LSTM start from four language models, those of ADV from two, those of VAT from four.
- VAT's rows drew unlabeled text of medium length more often than the shortest and the longest. It is drawn
  evenly now ([log](../log/README.md)); the rows were not repeated.
- Free gates were fitted with a ridge on their values. The ridge now accounts for the scale of each component
  ([log](../log/README.md)), which matters if dev is small.
- `transformer` on `rotten` is MiniLM, pre-trained on IMDB's sentences and fine-tuned on IMDB's labels before
  ([log](../log/README.md)).
- The expert of a `-student` row is a self-training round: it has also learned the predictions of the row
  without that suffix (free gates, with a lexicon) on unlabeled text. So all its columns used a lexicon.
"""


def results_page(lines: Sequence[Line]) -> str:
    """The complete page."""
    datasets = sorted({line["dataset"] for line in lines})
    parts = [HEAD]
    for dataset in datasets:
        own = [line for line in lines if line["dataset"] == dataset]
        parts += [f"## {dataset}", _results(dataset, own), _windows(dataset, own), _more_data(dataset, own)]
        parts.append(_provenance(own))
    if not datasets:
        parts.append("No results yet.")
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _results(dataset: str, lines: Sequence[Line]) -> str:
    """Experts by variants."""
    rows, empty, blank, experts = [], 0, [], experts_of(lines)
    for expert in experts:
        cells = []
        for variant in VARIANTS:
            found = _select(lines, expert=expert, variant=variant, windows=list(WINDOWS), unlabeled=None)
            empty += not found
            star = "\\*" if found and variant.startswith("imn") and _is_starred(lines, found) else ""
            cells.append(_shown(found, RESULTS.get(expert, {}).get(variant, {}).get(dataset)) + star)
        if any(cells):
            rows.append([expert, *cells])
        else:
            blank.append(expert)
    if empty == len(experts) * len(VARIANTS):
        return ""
    table = _table(["expert", *(TITLES[variant] for variant in VARIANTS)], rows)
    notes = [f"{empty} of {len(experts) * len(VARIANTS)} cells are empty.", *_without_row(blank)]
    notes += _mixed_settings(lines)
    return f"### Table of results\n\n{table}\n\n{' '.join(notes)}"


def _without_row(experts: Sequence[str]) -> Iterator[str]:
    """A sentence in place of rows without a figure of either side."""
    if experts:
        yield f"Rows without figures of either are omitted: {', '.join(experts)}."


def _mixed_settings(lines: Sequence[Line]) -> Iterator[str]:
    """A sentence for each expert whose results are not of one kind."""
    for expert in experts_of(lines):
        digests = sorted({line["settings"] for line in _select(lines, expert=expert)})
        if len(digests) > 1:
            yield f"**Results of {expert} come from different settings** ({', '.join(digests)})."


def _windows(dataset: str, lines: Sequence[Line]) -> str:
    """Sets of windows by experts."""
    experts = [e for e in experts_of(lines) if _select(lines, expert=e, windows=[1], unlabeled=None)]
    if not experts:
        return ""
    rows = []
    lines = of_the_same_seeds(lines)
    for name, windows in WINDOW_SETS.items():
        cells = []
        for expert in experts:
            found = _select(lines, expert=expert, variant="imn", windows=list(windows), unlabeled=None)
            is_theirs = dataset == "elec" and expert == "adv-lm-lstm"
            cells.append(_shown(found, REMOVED_WINDOWS.get(windows) if is_theirs else None))
        rows.append([f"{name}: {', '.join(map(str, windows))}", *cells])
    return "### Windows\n\n" + _table(["windows", *experts], rows)


def _more_data(dataset: str, lines: Sequence[Line]) -> str:
    """The error by the amount of unlabeled text."""
    experts = [e for e in experts_of(lines) if any(_select(lines, expert=e, unlabeled=n) for n in AMOUNTS)]
    if not experts:
        return ""
    rows = []
    for amount in AMOUNTS:
        published = MORE_DATA.get(dataset, {}).get(amount)
        cells = [
            _shown(_select(lines, expert=e, variant="imn", unlabeled=amount), published) for e in experts
        ]
        rows.append([f"{amount:,}", *cells])
    return "### More data\n\n" + _table(["unlabeled documents", *experts], rows)


def _provenance(lines: Sequence[Line]) -> str:
    hardware = ", ".join(sorted({line["hardware"] for line in lines}))
    commits = ", ".join(sorted({line["commit"] for line in lines}))
    runs = {(line["expert"], line["seed"], cell_of(line).run): line["seconds"] for line in lines}
    sentence = (
        f"{len(lines)} cells; {hardware}; commits {commits}; {sum(runs.values()) / 60:.0f} minutes of runs."
    )
    shared = [
        f"{expert} {max(seconds) / 60:.1f}"
        for expert in experts_of(lines)
        if (seconds := [s for line in _select(lines, expert=expert) if (s := line["shared_seconds"])])
    ]
    if shared:
        sentence += f" Shared minutes of encoding, language models, and previous runs: {', '.join(shared)}."
    return sentence


def _select(lines: Sequence[Line], **wanted: Any) -> list[Line]:
    return [line for line in lines if all(line[name] == value for name, value in wanted.items())]


def _is_starred(lines: Sequence[Line], found: Sequence[Line]) -> bool:
    """Whether a variant beats all it must, over the seeds that both have."""
    also = ("imn", "closed-lexicon") if cell_of(found[0]).variant == "imn-lexicon" else ()
    for rival in ("plain", "closed", "random", *also):
        others = {
            line["seed"]: line
            for line in lines
            if line["expert"] == found[0]["expert"]
            and cell_of(line).variant == rival
            and cell_of(line).is_complete
        }
        pairs = [(line, others[line["seed"]]) for line in found if line["seed"] in others]
        if not pairs:
            return False
        own, other = (np.stack([correct_of(pair[side]) for pair in pairs]) for side in (0, 1))
        compared = paired_bootstrap(other, own, seed=0)
        if compared.difference <= 0 or compared.p_value >= 0.05:
            return False
    return True


def _shown(found: Sequence[Line], published: float | None) -> str:
    paper = "" if published is None else f" ({published:.2f})"
    if not found:
        return paper.strip()
    errors = [line["test_error"] for line in found]
    spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
    return f"{statistics.mean(errors):.2f}{spread} [{len(errors)}]{paper}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


WIDTH, HEIGHT, LEFT, BOTTOM = 560, 340, 52, 296

Curve = list[tuple[float, float]]  # x, error in %


def more_data_figure(dataset: str, lines: Sequence[Line]) -> str | None:
    """Error against unlabeled documents, on a log scale, beside the paper's curve; none without results."""
    curves: dict[str, Curve] = {}
    for expert in experts_of(lines):
        found = [line for line in lines if line["expert"] == expert and line["unlabeled"] is not None]
        curves[f"{expert} + IMN"] = _means([(line["unlabeled"], line["test_error"]) for line in found])
    if not any(curves.values()):
        return None
    curves["ADV-LM-LSTM + IMN, paper"] = sorted(MORE_DATA.get(dataset, {}).items())
    logs = {name: [(math.log10(x), y) for x, y in curve] for name, curve in curves.items() if curve}
    ends = {curve[-1][0] for curve in curves.values() if curve}  # the paper's has more points than labels fit
    xs = sorted(ends | {x for name, curve in curves.items() if "paper" not in name for x, _ in curve})
    marks = [(math.log10(x), f"{x:,.0f}") for x in xs]
    return _drawn(f"More data, better performance: {dataset}", "unlabeled documents", marks, logs)


def windows_figure(dataset: str, lines: Sequence[Line]) -> str | None:
    """Error by set of windows for each expert; none without results."""
    names = list(WINDOW_SETS)
    curves: dict[str, Curve] = {}
    for expert in experts_of(lines):
        points = [
            (float(names.index(name)), line["test_error"])
            for line in of_the_same_seeds(lines)
            for name, windows in WINDOW_SETS.items()
            if line["expert"] == expert and tuple(line["windows"]) == windows
        ]
        curves[f"{expert} + IMN"] = _means(points)
    drawn = {name: curve for name, curve in curves.items() if len(curve) > 1}
    if not drawn:
        return None
    marks = [(float(i), name) for i, name in enumerate(names)]
    return _drawn(f"Sets of windows: {dataset}", "windows", marks, drawn)


def _means(points: Sequence[tuple[float, float]]) -> Curve:
    """One point for each x: the mean over seeds."""
    return [(x, statistics.mean(y for at, y in points if at == x)) for x in sorted({x for x, _ in points})]


def _drawn(title: str, x_name: str, marks: Sequence[tuple[float, str]], curves: dict[str, Curve]) -> str:
    errors = [y for curve in curves.values() for _, y in curve]
    listed = "; ".join(f"{name}: " + ", ".join(f"{y:.2f}" for _, y in c) for name, c in curves.items())
    figure = Figure("figure", WIDTH, HEIGHT + 18 * len(curves) + 8, title, f"Test error in %. {listed}.")
    ys = ticks(min(errors), max(errors))
    last = max(x for curve in curves.values() for x, _ in curve)
    x = Scale(marks[0][0], max(last, marks[-1][0], marks[0][0] + 1e-9), LEFT, WIDTH - 24)
    y = Scale(ys[0], ys[-1], BOTTOM, 24)
    for tick in ys:
        figure.line(LEFT, y(tick), WIDTH - 24, y(tick), "grid")
        figure.text(LEFT - 8, y(tick) + 4, tick_text(tick), "tick", "end")
    figure.line(LEFT, BOTTOM, WIDTH - 24, BOTTOM, "axis")
    for at, name in marks:
        figure.text(x(at), BOTTOM + 18, name, "tick", "middle")
    figure.text((LEFT + WIDTH) / 2, BOTTOM + 38, x_name, "name", "middle")
    figure.text(0, 14, "test error, %", "name")
    rules = []
    for number, (name, curve) in enumerate(curves.items()):
        css = f"c{number} paper" if name.endswith("paper") else f"c{number}"
        rules.append(f".c{number}{{stroke:{COLORS[number % len(COLORS)]}}}")
        figure.path([(x(a), y(b)) for a, b in curve], css)
        figure.path([(LEFT, HEIGHT + 14 + 18 * number), (LEFT + 24, HEIGHT + 14 + 18 * number)], css)
        figure.text(LEFT + 32, HEIGHT + 18 + 18 * number, name)
    return standalone(figure, "".join(rules))


EXPERTS = {"plain": "lm-lstm", "adv": "adv-lm-lstm", "vat": "vat-lm-lstm"}
BENCHES = ("bench-experts.json", "bench-imitators.json")


def speed_table(folder: Path) -> str:
    """Tokens per second in training beside the paper's; empty if nothing was measured."""
    experts, imitators = (read_figures(folder / name) or {} for name in BENCHES)
    rows = []
    for training, found in experts.get("training", {}).items():
        name = EXPERTS[training]
        rows.append((name, found["ours_tokens_per_second"], found["plain_tokens_per_second"], SPEED[name]))
    for found in imitators.get("rows", []):
        rates = found["tokens_per_second"]
        best = max((name for name in rates if name.startswith("ours")), key=lambda name: int(name[5:]))
        rows.append((_speed_windows(found["windows"]), rates[best], rates["plain float32"], found["paper"]))
    if not rows:
        return ""
    head = "| | mein | plain PyTorch, float32 | mein / plain | the paper (V100) |\n|---|---|---|---|---|"
    lines = [
        f"| {name} | {_shown_rate(ours)} | {_shown_rate(plain)} | {ours['median'] / plain['median']:.1f} "
        f"| {'' if paper is None else f'{paper:,}'} |"
        for name, ours, plain, paper in rows
    ]
    where = ", ".join(dict.fromkeys(bench["device"] for bench in (experts, imitators) if bench))
    about = (
        "Tokens per second in training, forward + backward + update, median (lowest to highest); "
        f"{where}. Experts: batches of 32 x 256; imitators of mein: the largest batch that was measured, "
        "plain ones 32 x 256."
    )
    return "\n".join(["## Speed", "", about, "", head, *lines])


def _speed_windows(windows: list[int]) -> str:
    return "c = " + ", ".join(map(str, windows))


def _shown_rate(rate: dict[str, float]) -> str:
    return f"{rate['median']:,.0f} ({rate['lowest']:,.0f} to {rate['highest']:,.0f})"
