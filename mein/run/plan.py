"""What a training is going to use and why, what it takes, and what would help more: for check and train."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from mein.config import Config
from mein.data.audit import SAMPLED, Audit
from mein.data.labels import in_number
from mein.data.splits import dev_size
from mein.model.build import open_reader
from mein.run.documents import FOLDS, Split
from mein.run.evaluate import read_verdict
from mein.run.forecast import Amounts, Forecast, forecast, measured, measured_pace
from mein.run.state import UNLABELED_PARTS, Run
from mein.runtime.device import choose_device
from mein.runtime.run_folder import RunFolder
from mein.text.words import UNSPACED, tokenize

FEW_OF_CLASS = 10  # labels: with fewer, a class is named
NAMED = 3  # classes in a sentence
FEW_LABELS = 2_000  # up to here, an encoder knows much that labels do not tell
SHORT = 300  # characters: in longer texts, words tell about as much as an encoder of the first 256 tokens
LARGEST_UNSPACED = 0.3  # of a text in words; in a text of letters, English encoders know little
LITTLE_TEXT = 10_000  # unlabeled documents
PIECES_OF_TOKEN = 1.4  # 1.25 to 1.65 in vocabularies of 1,000 to 8,000 pieces
LARGEST_TIMED = 1e9  # bytes of an encoder that is timed before a training
TIMED_TEXTS = 32


@dataclass(frozen=True)
class Choice:
    """One thing that a training uses, and why."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Facts:
    """What advice depends on besides the settings."""

    class_counts: Mapping[str, int]
    unlabeled: int
    sample: Sequence[str]
    """Some labeled texts."""
    repeated: int = 0
    """Labeled documents whose text came before."""
    conflicts: int = 0
    """Labeled texts with more than one label."""
    leaked: int = 0
    """Documents of training and test alike."""

    @property
    def labels(self) -> int:
        """How many labeled documents there are."""
        return sum(self.class_counts.values())

    @property
    def unspaced(self) -> float:
        """The share of characters of scripts without spaces between words."""
        text = "".join(self.sample)
        return len(re.findall(f"[{UNSPACED}]", text)) / max(1, len(text))


def choices(config: Config, preset: tuple[str, str], facts: Facts, *, has_dev: bool) -> list[Choice]:
    """What a training uses, in its order. preset: its name, and why it is the one."""
    traits = config.expert.traits
    held = 0 if has_dev else dev_size(facts.labels, config.dev_fraction)
    if traits.is_fitted:
        labels = (
            f"all {facts.labels:,} teach, in {FOLDS} folds",
            "predictions out of fold weigh the components",
        )
    elif has_dev:
        labels = f"all {facts.labels:,} teach", "--dev validates"
    else:
        labels = f"{facts.labels - held:,} teach, {held:,} validate", "there is no --dev"
    found = [
        Choice("preset", *preset),
        Choice("expert", config.expert.kind, "it needs few labels" if traits.is_fitted else traits.meaning),
        Choice("labels", *labels),
    ]
    if traits.has_encoder:
        found.append(Choice("encoder", str(config.expert.model), "the settings name it"))
    if traits.reads in ("words", "features"):
        spaced = facts.unspaced <= LARGEST_UNSPACED
        why = "spaces separate them" if spaced else f"{facts.unspaced:.0%} are of scripts without spaces"
        found.append(Choice("text", "words" if spaced else "single letters", why))
    if not facts.unlabeled:
        return [*found, Choice("imitators", "none", "there is no unlabeled text")]
    widths = ", ".join(str(2 * c + 1) for c in config.imitators.windows)
    count = len(config.imitators.windows)
    why = in_number("{n} unlabeled {documents} teach", facts.unlabeled)
    found.append(Choice("imitators", f"{count}, of {widths} pieces", why))
    if config.mixture.has_lexicon:
        found.append(Choice("lexicon", "n-grams of pieces", "labels show some of them"))
    return found


def preset_of(
    preset: str | None, file: Path | None, encoder: str | None, default: Callable[[], str]
) -> tuple[str, str]:
    """The name of the preset that the settings were made from, and why it is the one."""
    if preset is not None:
        return preset, "--preset names it"
    if file is not None:
        return "none", f"{file} has the settings"
    if encoder is not None:
        return "frozen", "--encoder names an encoder"
    name = default()
    return name, "there is a GPU" if name == "full" else "there is no GPU"


def in_short(config: Config, preset: tuple[str, str], labeled: Split, *, has_dev: bool) -> list[str]:
    """The first lines of a training: preset and labels, then who learns from them."""
    name, why = preset
    settings = f"Preset {name}" if name != "none" else "Settings"
    counts = sorted(_class_counts(labeled, has_dev=has_dev).values())
    each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    teach = f"{len(labeled.train_texts):,} labels teach the expert {config.expert.kind!r}"
    if config.expert.traits.is_fitted:
        teach = f"All labels teach the expert {config.expert.kind!r}, in {FOLDS} folds"
    elif not has_dev:
        teach += f", {len(labeled.dev_texts):,} validate it"
    return [
        f"{settings} ({why}): {sum(counts):,} labels in {len(counts):,} classes ({each} each).",
        f"{teach}.",
    ]


def _class_counts(labeled: Split, *, has_dev: bool) -> dict[str, int]:
    """How many labeled documents each class has, those of --dev left out."""
    counts = np.bincount(labeled.train_ids, minlength=len(labeled.labels.classes))
    if not (has_dev or labeled.is_folded):
        counts += np.bincount(labeled.dev_ids, minlength=len(counts))
    return {str(name): int(n) for name, n in zip(labeled.labels.classes, counts, strict=True)}


def costs_in_short(run: Run) -> list[str]:
    """The next lines, once the text is encoded: imitators; time, memory, disk."""
    config = run.config
    train, unlabeled = run.store("train"), sum(run.counts.get(part, 0) for part in UNLABELED_PARTS)
    pieces = sum(run.store(part).manifest.pieces for part in UNLABELED_PARTS) if run.has_imitators else 0
    amounts = Amounts(
        len(train),
        run.classes,
        train.manifest.pieces / max(1, len(train)),
        unlabeled if run.has_imitators else 0,
        pieces / max(1, unlabeled),
        len(run.corpus.test_survey.keys) if run.corpus.test is not None else 0,
        run.row_size,
    )
    lines = [f"Expected: {shown_costs(expected(config, amounts))}."]
    if run.has_imitators:
        who = f"{len(config.imitators.windows)} imitators{' and a lexicon' if run.has_lexicon else ''}"
        lines.insert(0, in_number(f"{who} on {{n}} unlabeled {{documents}}.", unlabeled))
    return lines


def helpful_in_short(run: Run) -> str:
    """The last line of a training, which knows its result."""
    labeled, has_dev = run.labeled, run.corpus.dev is not None
    facts = Facts(
        _class_counts(labeled, has_dev=has_dev),
        sum(run.counts.get(part, 0) for part in UNLABELED_PARTS),
        labeled.train_texts[:SAMPLED],
        leaked=run.counts.get("train_in_test", 0),
    )
    outcome = read_verdict(run.folder).outcome if run.has_imitators else None
    return f"What would help more: {'; '.join(helpful(run.config, facts, outcome))}."


def shown_costs(costs: Forecast) -> str:
    """Such as: about 2 minutes, 0.6 GB of memory, 11 MB of disk."""
    least = "about" if costs.is_complete else "more than"
    sizes = f"{shown_bytes(costs.memory_bytes)} of memory, {shown_bytes(costs.disk_bytes)} of disk"
    return f"{least} {shown_seconds(costs.total)}, {sizes}"


def shown_seconds(seconds: float) -> str:
    """As precise as a forecast is.

    >>> [shown_seconds(n) for n in (24.9, 70, 100, 3_500, 20_000)]
    ['20 seconds', '1 minute', '2 minutes', '1 hour', '6 hours']
    """
    for size, unit in ((3_600, "hour"), (60, "minute")):
        if seconds > 0.9 * size:
            number = round(seconds / size)
            return f"{number} {unit}" + ("" if number == 1 else "s")
    return f"{max(1, round(seconds / 10)) * 10} seconds"


def shown_bytes(size: float) -> str:
    """In GB, or in MB below half of one.

    >>> shown_bytes(560e6), shown_bytes(11.4e6)
    ('0.6 GB', '11 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 5e8 else f"{size / 1e6:,.0f} MB"


def expected(config: Config, amounts: Amounts) -> Forecast:
    """The costs of a training here, after half a second of measuring."""
    return forecast(config, amounts, measured(config, amounts), measured_pace(config))


@dataclass(frozen=True)
class Plan:
    """What a training uses, what it takes, and what would help more."""

    choices: list[Choice]
    costs: Forecast
    helpful: list[str]


def planned(config: Config, preset: tuple[str, str], found: Audit) -> Plan:
    """The plan for data that were audited and have no problems."""
    parts, labeled = found.parts, found.parts["labeled"]
    unlabeled = parts["unlabeled"].documents if "unlabeled" in parts else 0
    facts = Facts(
        labeled.class_counts,
        unlabeled,
        found.samples["labeled"],
        labeled.duplicates,
        labeled.conflicts,
        found.overlaps.get(("labeled", "test"), 0),
    )
    amounts = with_encoder(
        config, amounts_of(config, found), found.samples["unlabeled"] or found.samples["labeled"]
    )
    return Plan(
        choices(config, preset, facts, has_dev="dev" in parts),
        expected(config, amounts),
        list(helpful(config, facts)),
    )


def amounts_of(config: Config, found: Audit) -> Amounts:
    """What a training would read of audited data, without an encoder."""
    parts = found.parts
    return Amounts(
        parts["labeled"].documents,
        len(parts["labeled"].class_counts),
        _pieces(config, found, "labeled"),
        parts["unlabeled"].documents if "unlabeled" in parts else 0,
        _pieces(config, found, "unlabeled") if "unlabeled" in parts else 0.0,
        parts["test"].documents if "test" in parts else 0,
    )


def _pieces(config: Config, found: Audit, name: str) -> float:
    """About how many pieces a document of a part has: those of some texts, by characters."""
    part, sample = found.parts[name], found.samples[name]
    tokens = sum(len(tokenize(text, config.words)) for text in sample)
    return PIECES_OF_TOKEN * tokens / max(1, sum(map(len, sample))) * part.characters / part.documents


def with_encoder(config: Config, amounts: Amounts, texts: Sequence[str]) -> Amounts:
    """The amounts with an encoder, which is timed on some texts if it is a local folder of no great size."""
    if config.expert.traits.reads != "features" or not texts:
        return amounts
    source = Path(str(config.expert.model)).expanduser()
    weights = sum(path.stat().st_size for path in source.rglob("*.safetensors")) if source.is_dir() else 0
    if not 0 < weights <= LARGEST_TIMED:
        return replace(amounts, features=384, encoder_seconds=None)
    with TemporaryDirectory() as folder:
        device = choose_device(config.runtime.device)
        reader = open_reader(config, RunFolder(Path(folder) / "run"), range(amounts.classes), device)
        assert reader is not None
        mean = sum(map(len, texts)) / len(texts)
        alike = sorted(texts, key=lambda text: abs(len(text) - mean))[:TIMED_TEXTS]
        reader(alike[:2])  # a first call takes longer
        started = perf_counter()
        reader(alike)
        seconds = (perf_counter() - started) / len(alike)
        return replace(amounts, features=reader.size or 0, encoder_seconds=seconds)


def helpful(config: Config, facts: Facts, outcome: str | None = None) -> Iterator[str]:
    """What would help more, the surest first; outcome: of the unlabeled text in a finished run."""
    few = sorted((n, name) for name, n in facts.class_counts.items() if n < FEW_OF_CLASS)
    if few:
        named = ", ".join(f"{name!r} has {n}" for n, name in few[:NAMED])
        more = f", and {len(few) - NAMED:,} more classes have few" if len(few) > NAMED else ""
        labels = "label" if few[0][0] == 1 and len(few) == 1 else "labels"
        yield f"more labels of rare classes ({named} {labels}{more})"
    if facts.conflicts:
        yield in_number("one label for each text ({n} {texts} {have} several)", facts.conflicts)
    if facts.leaked:
        yield in_number("a test set without training text ({n} {documents} {are} in both)", facts.leaked)
    if facts.repeated > facts.labels / 20:
        yield in_number("other texts instead of repeated ones ({n} labeled {documents})", facts.repeated)
    length = median(map(len, facts.sample)) if facts.sample else 0
    is_short = length <= SHORT and facts.unspaced <= LARGEST_UNSPACED
    if not config.expert.traits.has_encoder and facts.labels <= FEW_LABELS and is_short:
        yield "an encoder, `--encoder auto` for English (texts are short, labels few)"
    if not facts.unlabeled:
        yield "unlabeled text of the same kind (there is none)"
    elif facts.unlabeled < LITTLE_TEXT and outcome in (None, "helped"):
        yield in_number("more unlabeled text of the same kind (there {are} {n} {documents})", facts.unlabeled)
    if not few:
        each = min(facts.class_counts.values(), default=0)
        yield f"more labels (the rarest class has {each:,})"
