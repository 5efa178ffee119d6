"""Figures as people read them."""

import math


def p_value(value: float | None) -> str:
    """Such as 0.41, 0.0320, 0.0003, < 0.0001; nothing for none."""
    if value is None:
        return ""
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def p_equals(value: float) -> str:
    """Such as p = 0.41, p < 0.0001."""
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def signed(value: float, digits: int = 2) -> str:
    """With its sign, a true minus: +1.25, −0.30."""
    text = f"{abs(value):.{digits}f}"
    return f"−{text}" if value < 0 and float(text) else f"+{text}"


def number(value: float) -> str:
    """Three figures and no more zeros than needed: 0.0123, 1.25, 110, 12,000."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def seconds(value: float) -> str:
    """Such as 4.7 s, 2 min 5 s, 1 h 12 min."""
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def counted(n: int, one: str) -> str:
    """1 document, 2,000 documents."""
    return f"{n:,} {one if n == 1 else one + 's'}"
