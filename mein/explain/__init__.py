"""Explanations: which fragments support which label, in parts that add up."""

from mein.explain.explanation import Explanation, Piece, explain, top_fragments
from mein.explain.fragments import Fragment
from mein.explain.page import as_page

__all__ = ["Explanation", "Fragment", "Piece", "as_page", "explain", "top_fragments"]
