"""Networks that others trained: from a folder or the Hugging Face hub, into a folder that works offline."""

from mein.hub.fetch import fetch
from mein.hub.networks import load_transformer
from mein.hub.readers import FrozenFeatures, HubTokenizer
from mein.hub.static import StaticFeatures, is_static

__all__ = [
    "FrozenFeatures",
    "HubTokenizer",
    "StaticFeatures",
    "fetch",
    "is_static",
    "load_transformer",
]
