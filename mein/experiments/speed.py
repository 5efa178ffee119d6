"""The table of speed, from what `mein bench experts` and `mein bench imitators` left among the results."""

from pathlib import Path

from mein.bench.figures import read_figures
from mein.experiments.published import SPEED

EXPERTS = {"plain": "lm-lstm", "adv": "adv-lm-lstm", "vat": "vat-lm-lstm"}
BENCHES = ("bench-experts.json", "bench-imitators.json")


def speed_table(folder: Path) -> str:
    """Tokens a second in training, ours beside the paper's; empty where nothing was measured."""
    experts, imitators = (read_figures(folder / name) or {} for name in BENCHES)
    rows = []
    for training, found in experts.get("training", {}).items():
        name = EXPERTS[training]
        rows.append((name, found["ours_tokens_per_second"], found["plain_tokens_per_second"], SPEED[name]))
    for found in imitators.get("rows", []):
        rates = found["tokens_per_second"]
        best = max((name for name in rates if name.startswith("ours")), key=lambda name: int(name[5:]))
        rows.append((_windows(found["windows"]), rates[best], rates["plain float32"], found["paper"]))
    if not rows:
        return ""
    head = "| | ours | plain PyTorch, float32 | ours / plain | the paper (V100) |\n|---|---|---|---|---|"
    lines = [
        f"| {name} | {_told(ours)} | {_told(plain)} | {ours['median'] / plain['median']:.1f} "
        f"| {'' if paper is None else f'{paper:,}'} |"
        for name, ours, plain, paper in rows
    ]
    where = ", ".join(dict.fromkeys(bench["device"] for bench in (experts, imitators) if bench))
    about = (
        "Tokens a second in training, forward + backward + update, median (lowest to highest); "
        f"{where}. Experts: batches of 32 x 256; our imitators: the largest batch that was measured, "
        "plain ones 32 x 256."
    )
    return "\n".join(["## Speed", "", about, "", head, *lines])


def _windows(windows: list[int]) -> str:
    return "c = " + ", ".join(map(str, windows))


def _told(rate: dict[str, float]) -> str:
    return f"{rate['median']:,.0f} ({rate['lowest']:,.0f} to {rate['highest']:,.0f})"
