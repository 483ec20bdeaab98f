"""Pictures to patches (Dosovitskiy et al. 2021, section 3.1), and back."""

import struct
import warnings
from io import BufferedIOBase
from typing import IO, TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Float

from transformer.common.errors import InputError
from transformer.common.packages import require_package
from transformer.data.features.reference import Reference
from transformer.data.features.signatures import opened_as
from transformer.settings.sources import ImageConfig

if TYPE_CHECKING:
    from PIL import Image

# Pillow knows formats whose readers start other programs.
FORMATS = ("PNG", "JPEG")

_ADVICE = "replace it by a picture in PNG or JPEG, or leave it out"


def require_pictures() -> None:
    """Raise MissingPackage unless the packages of the extra ``image`` are installed."""
    require_package("PIL", "reading pictures", "image")


def read_picture(
    reference: Reference, config: ImageConfig
) -> Float[np.ndarray, "height width channel"]:
    """Read a picture as float32, ``(pixel / 255 - mean) / std``.

    It is turned as its camera was held (EXIF), laid on white where it is transparent, and scaled
    (bilinear) to ``config.height`` and ``config.width``. Without a width it keeps its proportions,
    and is filled with white at the right, up to a whole patch.

    Raises InputError, which names the source, for a file that is no PNG or JPEG, is damaged, or has
    more pixels than Pillow's ``Image.MAX_IMAGE_PIXELS``; MissingPackage without the extra
    ``image``.
    """
    require_pictures()
    from PIL import Image

    errors = (
        SyntaxError,
        EOFError,
        Image.DecompressionBombError,
        # Of a damaged EXIF block.
        struct.error,
        KeyError,
    )
    with opened_as("image", reference, "a picture", _ADVICE, *errors) as file:
        if reference.start or reference.end is not None or reference.speed != 1:
            raise InputError("a picture has no times and no speed; leave out #t= and speed=")
        picture = _scaled(_flat(_decoded(file), config.channels), config)
    # height width channel, also of a gray picture
    pixels = np.asarray(picture, np.float32).reshape(picture.height, picture.width, -1)
    return (pixels / np.float32(255) - np.float32(config.mean)) / np.float32(config.std)


def _decoded(file: BufferedIOBase) -> "Image.Image":
    from PIL import Image, ImageOps, UnidentifiedImageError

    with warnings.catch_warnings():
        # Pillow refuses a picture only if it is twice as large as its limit.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            picture = Image.open(cast(IO[bytes], file), formats=FORMATS)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise InputError(
                f"the picture has more than {Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller"
            ) from error
        except UnidentifiedImageError as error:
            # The message names a Python object.
            raise ValueError("its content is neither PNG nor JPEG") from error
    picture.load()
    return ImageOps.exif_transpose(picture)


def _flat(picture: "Image.Image", channels: int) -> "Image.Image":
    """A picture in gray or RGB, without transparency."""
    from PIL import Image

    if picture.mode.startswith("I"):
        # 16 bits of gray, which Pillow would cut off at 255.
        wide = np.asarray(picture).astype(np.float64)
        # A PNG (tRNS) may call one gray transparent, which eight bits do not tell from others.
        wide[wide == picture.info.get("transparency", -1)] = 65_535
        picture = Image.fromarray((wide / 257).round().clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert("L" if channels == 1 else "RGB")


def _scaled(picture: "Image.Image", config: ImageConfig) -> "Image.Image":
    from PIL import Image

    width = config.width
    if width is None:
        width = max(1, round(picture.width * config.height / picture.height))
        if width * config.height > (Image.MAX_IMAGE_PIXELS or np.inf):
            raise InputError(
                f"the picture would be {width:,} pixels wide at data.image.height="
                f"{config.height}; cut it into several"
            )
    scaled = picture.resize((width, config.height), Image.Resampling.BILINEAR)
    missing = -width % config.patch_width
    if not missing:
        return scaled
    filled = Image.new(scaled.mode, (width + missing, config.height), "white")
    filled.paste(scaled)
    return filled


def patches(
    picture: Float[np.ndarray, "height width channel"], config: ImageConfig
) -> Float[np.ndarray, "patch pixel"]:
    """Cut a picture into patches, row by row from the top left (equation 1: x_p).

    The numbers of a patch are in the order height, width, channel: a row of the patch after
    another, and in it the channels of each pixel side by side.
    """
    tall, wide = config.patch_height, config.patch_width
    height, width, channels = picture.shape
    cut = picture.reshape(height // tall, tall, width // wide, wide, channels)
    # (row tall) (column wide) channel -> (row column) (tall wide channel)
    return cut.transpose(0, 2, 1, 3, 4).reshape(-1, tall * wide * channels)


def picture_of(
    vectors: Float[np.ndarray, "patch pixel"], config: ImageConfig
) -> Float[np.ndarray, "height width channel"]:
    """Put the `patches` of a picture together; its width follows from their number."""
    tall, wide = config.patch_height, config.patch_width
    rows = config.height // tall
    cut = vectors.reshape(rows, -1, tall, wide, config.channels)
    # (row column) (tall wide channel) -> (row tall) (column wide) channel
    return cut.transpose(0, 2, 1, 3, 4).reshape(config.height, -1, config.channels)
