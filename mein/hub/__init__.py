"""Networks that others trained: from a folder or the Hugging Face hub, into a folder that works offline."""

from mein.hub.fetch import fetch
from mein.hub.masked import Vocabulary, fetch_masked, leave, load_masked, save_encoder
from mein.hub.networks import load_transformer
from mein.hub.readers import FrozenFeatures, HubTokenizer

__all__ = [
    "FrozenFeatures",
    "HubTokenizer",
    "Vocabulary",
    "fetch",
    "fetch_masked",
    "leave",
    "load_masked",
    "load_transformer",
    "save_encoder",
]
