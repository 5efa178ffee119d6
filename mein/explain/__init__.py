"""Which fragments spoke for which label: the imitators' own p_ij, split so that the parts add up."""

from mein.explain.explanation import Explanation, Fragment, Piece, explain, top_fragments
from mein.explain.page import as_page

__all__ = ["Explanation", "Fragment", "Piece", "as_page", "explain", "top_fragments"]
