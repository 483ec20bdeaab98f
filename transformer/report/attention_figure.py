"""An attention view as one figure for print, drawn by matplotlib (the extra ``plot``)."""

import io
import logging
import textwrap
import warnings
from typing import TYPE_CHECKING, Any

from transformer.common.escaping import shortened
from transformer.evaluation.attention.head_metrics import describe
from transformer.evaluation.attention.view import AttentionKind, AttentionView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

log = logging.getLogger(__name__)

# Inches; the longest sentences have no labels.
_TOKEN, _MAP, _LABELS, _HEADER = 0.15, 1.25, 0.8, 0.95
_WIDEST_LABELLED = 24.0
_SMALL = 6.5  # points
_DPI = 150
_INVISIBLE = "#ebebe8"


def attention_figure(view: AttentionView) -> bytes:
    """The view as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    widths, heights = zip(*map(_size, view.kinds), strict=True)
    width = max(widths)
    figure = Figure((max(width, 6.0), _HEADER + sum(heights)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    target = view.target + (" (given)" if view.forced else "")
    about = f"{view.checkpoint}: {view.size}; heads measured over {view.measured}; white 0, blue 1"
    lines = (_cut(text, int(width * 10)) for text in (view.source, target, about))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=9, parse_math=False)
    blocks = figure.subfigures(len(view.kinds), 1, squeeze=False, height_ratios=heights)
    for block, kind in zip(blocks.flat, view.kinds, strict=True):
        _draw_block(block, kind)
    file = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(file, format="png", dpi=_DPI)
    if any("Glyph" in str(warning.message) for warning in caught):
        log.warning("attention.png shows boxes for letters that no font of matplotlib has")
    return file.getvalue()


def _size(kind: AttentionKind) -> tuple[float, float]:
    """Width and height in inches, about 16 letters of a token's label among them."""
    layers, heads, queries, keys = kind.weights.shape
    labels, width = (_LABELS, max(_MAP, _TOKEN * keys)) if _is_labelled(kind) else (0.2, _MAP)
    height = width * queries / keys + labels + 0.2
    return labels + heads * (width + 0.1), layers * height + 0.5


def _is_labelled(kind: AttentionKind) -> bool:
    return kind.weights.size(1) * len(kind.keys) * _TOKEN <= _WIDEST_LABELLED


def _draw_block(figure: "FigureBase", kind: AttentionKind) -> None:
    figure.suptitle(f"{kind.title}\n{kind.note}", fontsize=8)
    grid = figure.subplots(*kind.weights.shape[:2], squeeze=False, sharex=True, sharey=True)
    for layer, row in enumerate(grid):
        for head, axes in enumerate(row):
            _draw_head(axes, kind, layer, head)


def _draw_head(axes: "Axes", kind: AttentionKind, layer: int, head: int) -> None:
    shown = kind.weights[layer, head].float().masked_fill(~kind.visible, float("nan")).numpy()
    axes.set_facecolor(_INVISIBLE)
    axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    style: dict[str, Any] = {"fontsize": _SMALL, "parse_math": False}
    if _is_labelled(kind):
        axes.set_xticks(range(len(kind.keys)), [_cut(key, 16) for key in kind.keys], **style)
        axes.set_yticks(range(len(kind.queries)), [_cut(one, 16) for one in kind.queries], **style)
    else:
        axes.set(xticks=[], yticks=[])
    axes.tick_params("x", rotation=90, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.tick_params("y", left=False, labelleft=head == 0)
    words = f"{layer}.{head} {describe(kind.characters[layer][head])}"
    axes.set_xlabel(textwrap.fill(words, 23), fontsize=_SMALL, loc="left", parse_math=False)


def _cut(text: str, letters: int) -> str:
    return shortened(" ".join(text.split()), letters)
