"""Networks that others trained: from a folder or the Hugging Face hub, into a folder that works offline."""

from mein.hub.features import FrozenFeatures
from mein.hub.folder import fetch
from mein.hub.networks import load_transformer
from mein.hub.tokens import HubTokenizer

__all__ = ["FrozenFeatures", "HubTokenizer", "fetch", "load_transformer"]
