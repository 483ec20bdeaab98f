"""An attention view as one figure for print, drawn by matplotlib (the extra ``plot``).

The same grid as the page: a block a kind, a row a layer, a column a head. It does not know where
the picture is written to.
"""

import importlib.util
import io
import logging
import textwrap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer.errors import InputError
from transformer.evaluation.attention_view import AttentionKind, AttentionView
from transformer.evaluation.heads import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

# Inches.
_TOKEN, _THUMBNAIL, _GAP, _WORDS, _BLOCK, _HEADER = 0.15, 1.25, 0.16, 0.5, 0.55, 0.9
_WIDEST_LABELLED = 24.0
_SMALL = 6.5  # points
_DPI = 150
_INVISIBLE = "#ebebe8"


def require_matplotlib() -> None:
    """Say how to install what draws, before any work is done.

    Raises:
        InputError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "attention.png is drawn by matplotlib, which is not installed; "
            "pip install 'transformer[plot]', or set png=false"
        )


def attention_figure(view: AttentionView) -> bytes:
    """The view as a PNG.

    Raises:
        InputError: matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    blocks = [_Block.of(kind) for kind in view.kinds]
    width = max(6.0, *(block.width for block in blocks))
    height = _HEADER + sum(block.height for block in blocks)
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _write_header(figure, view)
    top = _HEADER
    for block in blocks:
        _draw_block(figure, block, top)
        top += block.height
    return _png(figure)


@dataclass(frozen=True)
class _Block:
    """One kind of attention and the inches it takes."""

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
            # A letter is about half as wide as it is high.
            letters = min(longest, 16) * _SMALL * 0.58 / 72
            size = max(_TOKEN, _THUMBNAIL / keys)
            return cls(kind, size * keys, size * queries, letters + 0.1)
        return cls(kind, _THUMBNAIL, _THUMBNAIL * queries / keys, 0.0)

    @property
    def column(self) -> float:
        return self.map_width + _GAP

    @property
    def row(self) -> float:
        return self.map_height + self.margin + _WORDS + 0.2

    @property
    def width(self) -> float:
        return 2 * _GAP + self.margin + 0.2 + self.kind.weights.size(1) * self.column

    @property
    def height(self) -> float:
        return _BLOCK + self.kind.weights.size(0) * self.row


def _write_header(figure: "Figure", view: AttentionView) -> None:
    height = figure.get_size_inches()[1]
    lines = [
        (0.3, 13, view.source),
        (0.55, 11, view.target + (" (given)" if view.forced else "")),
        (0.78, 7, f"{view.checkpoint}: {view.size}; heads measured over {view.measured}"),
    ]
    for below, size, text in lines:
        figure.text(
            _GAP / figure.get_size_inches()[0],
            1 - below / height,
            text,
            fontsize=size,
            parse_math=False,
        )


def _draw_block(figure: "Figure", block: _Block, top: float) -> None:
    width, height = figure.get_size_inches()
    kind = block.kind
    title = f"{kind.title}   ({kind.note})"
    figure.text(
        _GAP / width, 1 - (top + 0.3) / height, title, fontsize=9, weight="bold", parse_math=False
    )
    for layer in range(kind.weights.size(0)):
        below = top + _BLOCK + layer * block.row + 0.2 + block.margin + block.map_height
        for head in range(kind.weights.size(1)):
            left = _GAP + block.margin + 0.2 + head * block.column
            axes = figure.add_axes(
                (
                    left / width,
                    1 - below / height,
                    block.map_width / width,
                    block.map_height / height,
                )
            )
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
    letters = int(block.map_width * 72 / (_SMALL * 0.55))
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
