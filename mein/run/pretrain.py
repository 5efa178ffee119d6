"""`mein pretrain`: a language model from raw text. Separate from pipeline.py: there is no verdict."""

from mein.config import Config
from mein.data.corpus import DocumentStream
from mein.model.artefacts import load_indexer, seal
from mein.run.prepare import encode_raw
from mein.run.warm_start import language_model
from mein.runtime import ranks
from mein.runtime.device import choose_device
from mein.runtime.progress import Quiet, Reporter
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_facts
from mein.store.store import Store
from mein.training.language_model import STAGE
from mein.training.loop import Runtime


def pretrain(
    config: Config,
    source: DocumentStream,
    name: str,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
) -> float:
    """Train a language model on the source's text, in a folder; its perplexity on held-out text."""
    reporter = reporter if ranks.is_first() else Quiet()
    with folder.held():
        identity = config.model_dump(mode="json", exclude={"runtime"})
        with ranks.first_goes_ahead():
            folder.claim({"config": identity, "data": {"text": name}}, resume)
            encode_raw(config, source, folder, reporter)
        runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
        stores = [Store.open(folder / f"encoded/{part}") for part in ("unlabeled", "held_out")]
        words = load_indexer(config, folder).words
        device = choose_device(config.runtime.device)
        language_model(config, words, stores[:1], stores[1], runtime, device)
        if ranks.is_first() and not folder.is_done:
            folder.write_json("labels.json", {"classes": [], "prior": []})
            seal(folder)
        return float(load_facts(folder / f"{STAGE}.safetensors")["perplexity"])
