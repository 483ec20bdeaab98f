"""An attention view as one figure for print, drawn by matplotlib (the extra ``plot``).

The same grid as the page: a block a kind, a row a layer, a column a head.
"""

import io
import logging
import textwrap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer.evaluation.attention.head_metrics import describe
from transformer.evaluation.attention.view import AttentionKind, AttentionView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

# Inches.
_TOKEN, _THUMBNAIL, _GAP, _WORDS, _BLOCK, _HEADER = 0.15, 1.25, 0.16, 0.5, 0.45, 0.95
_WIDEST_LABELLED, _WIDEST_PAGE = 24.0, 36.0
_SMALL = 6.5  # points
_DPI = 150
_INVISIBLE = "#ebebe8"


def attention_figure(view: AttentionView) -> bytes:
    """The view as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    blocks = [_Block.of(kind) for kind in view.kinds]
    widths, heights = [block.width for block in blocks], [block.height for block in blocks]
    beside = sum(widths) <= _WIDEST_PAGE
    size = (sum(widths), max(heights)) if beside else (max(widths), sum(heights))
    figure = Figure((max(size[0], 6.0), _HEADER + size[1]), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _write_header(figure, view)
    left, top = 0.0, _HEADER
    for block in blocks:
        _draw_block(figure, block, left, top)
        left, top = (left + block.width, top) if beside else (left, top + block.height)
    return _png(figure)


@dataclass(frozen=True)
class _Block:
    """One kind of attention and its size in inches."""

    kind: AttentionKind
    map_width: float
    map_height: float
    margin: float
    """Left of the first map and above each map, for the tokens."""

    @classmethod
    def of(cls, kind: AttentionKind) -> "_Block":
        heads = kind.weights.size(1)
        queries, keys = len(kind.queries), len(kind.keys)
        if heads * keys * _TOKEN <= _WIDEST_LABELLED:
            longest = max(map(len, (*kind.queries, *kind.keys)))
            letters = min(longest, 16) * _SMALL * 0.58 / 72
            size = max(_TOKEN, _THUMBNAIL / keys)
            return cls(kind, size * keys, size * queries, letters + 0.1)
        return cls(kind, _THUMBNAIL, _THUMBNAIL * queries / keys, 0.0)

    @property
    def column(self) -> float:
        return self.map_width + _GAP

    @property
    def row(self) -> float:
        return self.map_height + self.margin + _WORDS

    @property
    def width(self) -> float:
        return 2 * _GAP + self.margin + self.kind.weights.size(1) * self.column

    @property
    def height(self) -> float:
        return _BLOCK + self.kind.weights.size(0) * self.row


def _write_header(figure: "Figure", view: AttentionView) -> None:
    width, height = figure.get_size_inches()
    about = f"{view.checkpoint}: {view.size}; heads measured over {view.measured}"
    target = view.target + (" (given)" if view.forced else "")
    for below, size, text in ((0.3, 13.0, view.source), (0.55, 11.0, target), (0.78, 7.0, about)):
        _write(figure, _GAP, below, _cut(text, width - 2 * _GAP, size), fontsize=size)
    # The colours of the maps, from 0 to 1.
    bar = figure.add_axes(((width - 2.2) / width, 1 - 0.4 / height, 1.8 / width, 0.12 / height))
    bar.imshow([[step / 255 for step in range(256)]], cmap="Blues", aspect="auto")
    bar.set_xticks((0, 255), ("0", "1"), fontsize=_SMALL)
    bar.set_yticks(())
    bar.tick_params(length=0, pad=2)


def _write(figure: "Figure", left: float, below: float, text: str, **style: Any) -> None:
    width, height = figure.get_size_inches()
    figure.text(left / width, 1 - below / height, text, parse_math=False, **style)


def _cut(text: str, width: float, points: float) -> str:
    """A line that fits into so many inches; a letter is about half as wide as it is high."""
    letters = max(8, int(width * 72 / (points * 0.58)))
    line = " ".join(text.split())
    return line if len(line) <= letters else line[: letters - 1] + "…"


def _draw_block(figure: "Figure", block: _Block, left: float, top: float) -> None:
    width, height = figure.get_size_inches()
    kind = block.kind
    _write(figure, left + _GAP, top + 0.18, kind.title, fontsize=10, weight="bold")
    _write(figure, left + _GAP, top + 0.36, kind.note, fontsize=7)
    for layer in range(kind.weights.size(0)):
        below = top + _BLOCK + layer * block.row + block.margin + block.map_height
        for head in range(kind.weights.size(1)):
            start = left + _GAP + block.margin + head * block.column
            size = (block.map_width / width, block.map_height / height)
            axes = figure.add_axes((start / width, 1 - below / height, *size))
            _draw_head(axes, block, layer, head)


def _draw_head(axes: "Axes", block: _Block, layer: int, head: int) -> None:
    kind = block.kind
    shown = kind.weights[layer, head].float().masked_fill(~kind.visible, float("nan")).numpy()
    axes.set_facecolor(_INVISIBLE)
    axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    labelled = block.margin > 0
    style: dict[str, Any] = {"fontsize": _SMALL, "parse_math": False}
    keys = [_short(token) for token in kind.keys] if labelled else []
    queries = [_short(token) for token in kind.queries] if labelled and head == 0 else []
    axes.set_xticks(range(len(keys)), keys, rotation=90, **style)
    axes.set_yticks(range(len(queries)), queries, **style)
    axes.tick_params(length=0, pad=1.5, top=False, labeltop=True, bottom=False, labelbottom=False)
    for side in axes.spines.values():
        side.set_linewidth(0.4)
    letters = int(block.map_width * 72 / (_SMALL * 0.62))
    words = textwrap.fill(f"{layer}.{head} {describe(kind.characters[layer][head])}", letters)
    axes.set_xlabel(words, fontsize=_SMALL, loc="left", labelpad=3, parse_math=False)


def _short(token: str) -> str:
    return token if len(token) <= 16 else token[:15] + "…"


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(file, format="png", dpi=_DPI)
    if any("Glyph" in str(warning.message) for warning in caught):
        log.warning("attention.png shows boxes for letters that no font of matplotlib has")
    return file.getvalue()
