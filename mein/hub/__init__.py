"""Networks that others trained: from a folder or the Hugging Face hub, into a folder that works offline."""

from mein.hub.fetch import fetch
from mein.hub.networks import load_transformer
from mein.hub.readers import FrozenFeatures, HubTokenizer

__all__ = [
    "FrozenFeatures",
    "HubTokenizer",
    "fetch",
    "load_transformer",
]
