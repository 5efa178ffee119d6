"""How long a run took, by its own records, which outlive a kill."""

from collections import Counter

from mein.training.folder import RunFolder


def seconds_of(folder: RunFolder) -> float:
    """The time of a run's steps; of a step that was resumed, that of its epochs where it is more."""
    steps = {line["step"]: float(line["seconds"]) for line in folder.metrics("steps")}
    epochs: Counter[str] = Counter()
    for line in folder.metrics():
        if "epoch" in line:
            epochs[line["stage"]] += line["seconds"]
    return sum(max(steps.get(name, 0.0), epochs[name]) for name in {*steps, *epochs})
