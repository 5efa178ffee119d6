"""Explanations: which fragments support which label, from the imitators' p_ij, in parts that add up."""

from mein.explain.explanation import Explanation, Fragment, Piece, explain, top_fragments
from mein.explain.page import as_page

__all__ = ["Explanation", "Fragment", "Piece", "as_page", "explain", "top_fragments"]
