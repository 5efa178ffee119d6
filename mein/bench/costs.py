"""docs/scale.md: what corpora of any size cost, from what `mein bench scale` and `pipeline` measured."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mein.bench.figures import read_figures
from mein.errors import InputError

CORPORA = (1_000_000, 100_000_000, 10_000_000_000)
STEPS = ("encode", "label", "imitate")
HOURS = 24.0  # in which a corpus is to be done
LINK = 12.5e9  # bytes a second of a network of 100 gigabit
PRICES = {"core": 0.05, "GPU": 4.0, "gigabyte": 0.02}  # $ an hour, an hour, a month; put your own
HEAD = """# What scale costs

Made by `mein bench costs` from what was measured under `results/`; do not edit. Measured: documents a second
of each step and bytes a document, on the machine that is named. Projected: everything else, by proportion,
which is right as long as steps are parallel over shards: encoding and labelling share nothing between shards;
imitators exchange gradients at every step, so their projection over many machines is the boldest one."""


@dataclass(frozen=True)
class Measured:
    """One machine's rates for one kind of document: documents a second of one unit, a core or a GPU."""

    title: str
    rates: dict[str, float]
    units: dict[str, str]
    bytes_per_document: dict[str, float]
    wire: str
    """What travels, and where that is the limit."""


def costs_page(results: Path) -> str:
    """The page; a kind of machine that was not measured is left out, and said to be."""
    found = [_of_cores(results / "bench-scale.json"), _of_gpu(results / "bench-pipeline.json")]
    measured = [one for one in found if one is not None]
    if not measured:
        raise InputError(
            f"{results} holds neither bench-scale.json nor bench-pipeline.json: measure with "
            f"`mein bench scale --out {results}/bench-scale.json`."
        )
    parts = [HEAD, *map(_section, measured)]
    if len(measured) < len(found):
        parts.append("One of the two kinds of machine, cores or GPU, has not been measured yet.")
    return "\n\n".join(parts) + "\n"


def _of_cores(path: Path) -> Measured | None:
    figures = read_figures(path)
    if figures is None:
        return None
    largest = max(figures["results"], key=lambda found: (found["documents"], found["workers"]))
    workers, tokens = largest["workers"], largest["tokens"]
    rates = {step: largest["steps"][step]["documents_per_second"] / workers for step in STEPS}
    title = (
        f"Short documents, {tokens['pieces'] / largest['documents']:.0f} pieces each, small networks, "
        f"CPU cores ({largest['documents']:,} documents, {workers} processes)"
    )
    sizes = largest["bytes_per_document"]
    return Measured(title, rates, dict.fromkeys(STEPS, "core"), sizes, _documents_on_the_wire(sizes))


def _of_gpu(path: Path) -> Measured | None:
    figures = read_figures(path)
    if figures is None:
        return None
    documents, seconds = figures["documents"], figures["seconds"]
    cores = min(figures["hardware"]["cores"], figures["encoding_processes"])
    rates = {
        "encode": documents / seconds["encoding"] / cores,
        "label": documents / seconds["labelling"],
        "imitate": documents * figures["epochs"] / seconds["imitators"],
    }
    title = f"Reviews of {figures['pieces'] / documents:.0f} pieces, the paper's sizes, {figures['device']}"
    units = {"encode": "core", "label": "GPU", "imitate": "GPU"}
    sizes = figures["bytes_per_document"]
    wire = f"{_documents_on_the_wire(sizes)} {_gradients_on_the_wire(figures, rates['imitate'])}"
    return Measured(title, rates, units, sizes, wire)


def _documents_on_the_wire(sizes: dict[str, float]) -> str:
    encoded, labels = f"{sizes['encoded']:,.0f} bytes", f"{sizes['labels']:,.0f}"
    return (
        f"On the wire, a document: its raw text from the process that reads to one that encodes, and "
        f"{encoded} to the store; {encoded} to one that labels, and {labels} back; {encoded} to each process "
        "that trains, once an epoch."
    )


def _gradients_on_the_wire(figures: dict[str, Any], rate: float) -> str:
    """Each process sends the sum of gradients and gets it, once a step, however many they are."""
    documents = figures["step"]["pieces"] / figures["pieces"] * figures["documents"]
    gradients = figures["step"]["gradient_bytes"]
    limit = documents * LINK / (2 * gradients)
    return (
        f"Imitators that share each step also exchange at most {gradients / 1e6:,.0f} MB of gradients a step "
        f"of {documents:,.0f} documents: a network of 100 gigabit a second is full at {limit:,.0f} documents "
        f"a second, {limit / rate:.1f} times the rate of one GPU. Beyond that the network is the bottleneck: "
        "raise imitator_training.batch_tokens."
    )


def _section(measured: Measured) -> str:
    """Rates, then a table of corpora."""
    rates = ", ".join(
        f"{step} {measured.rates[step]:,.0f} documents a second a {measured.units[step]}" for step in STEPS
    )
    sizes = ", ".join(f"{name} {size:,.0f}" for name, size in measured.bytes_per_document.items())
    head = [
        "documents",
        *(f"{step}, {measured.units[step]}-hours" for step in STEPS),
        f"units for {HOURS:.0f} hours",
        "storage, GB",
        "$ for work",
        "$ a month of storage",
        "longest step",
    ]
    rows = [_row(measured, documents) for documents in CORPORA]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    about = (
        f"Measured: {rates} (imitate: one epoch). Bytes a document at rest: {sizes}. Projected, with one "
        f"epoch of imitators, ${PRICES['core']} a core-hour, ${PRICES['GPU']} a GPU-hour and "
        f"${PRICES['gigabyte']} a gigabyte and month:"
    )
    return "\n\n".join([f"## {measured.title}", about, "\n".join(lines), measured.wire])


def _row(measured: Measured, documents: int) -> list[str]:
    hours = {step: documents / measured.rates[step] / 3600 for step in STEPS}
    needed: dict[str, float] = {}
    for step in STEPS:
        needed[measured.units[step]] = needed.get(measured.units[step], 0.0) + hours[step] / HOURS
    gigabytes = documents * sum(measured.bytes_per_document.values()) / 1e9
    work = sum(hours[step] * PRICES[measured.units[step]] for step in STEPS)
    units = [(max(1, math.ceil(count)), kind) for kind, count in needed.items()]
    return [
        f"{documents:,}",
        *(_told(hours[step]) for step in STEPS),
        ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for count, kind in units),
        _told(gigabytes),
        _told(work),
        _told(gigabytes * PRICES["gigabyte"]),
        max(STEPS, key=lambda step: hours[step]),
    ]


def _told(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
