"""Colours of the methods, the same in figures and on the page: the first is SASR's, and stands out."""

from __future__ import annotations

# Hues far apart in lightness too, so that neighbours can be told apart without colour vision and in print.
LIGHT = (
    "#c8321f", "#1f5fbf", "#0d8a6a", "#8a4fbf", "#b87a00", "#3a9fc9",
    "#b8447f", "#5b6b7a", "#6a8f1f", "#7a4a2b", "#23306b",
)  # fmt: skip
DARK = (
    "#ff6b52", "#6ea8ff", "#3fd0a5", "#c195f5", "#f2b73d", "#7fd4f5",
    "#f58bc0", "#aab8c5", "#b4d95a", "#d9a37a", "#a3b1ff",
)  # fmt: skip
DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)))
