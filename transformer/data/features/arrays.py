"""Files of NumPy's arrays to vectors."""

from tokenize import TokenError

import numpy as np
from jaxtyping import Float

from transformer.common.errors import InputError
from transformer.data.features.reference import Reference
from transformer.data.features.signatures import opened_as
from transformer.settings.sources import VectorsConfig

_ADVICE = "write it with numpy.save as an array of numbers, length × channels, or leave it out"


def read_array(reference: Reference, config: VectorsConfig) -> Float[np.ndarray, "length channel"]:
    """Read an ``.npy`` file of floats or integers as float32; ``config.channels`` 0 takes any.

    Raises InputError, which names the source, for a file of another kind, shape or type, with NaN
    or infinity, or that is damaged. Pickled objects are not loaded.
    """
    magic = np.lib.format.MAGIC_PREFIX
    errors = (EOFError, MemoryError, TokenError)
    with opened_as("vectors", reference, "an array", _ADVICE, *errors) as file:
        if reference.start or reference.end is not None or reference.speed != 1:
            raise InputError("an array has no times and no speed; leave out #t= and speed=")
        if file.read(len(magic)) != magic:
            raise ValueError("its content is not .npy")
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
        if array.dtype.kind not in "fiu":
            raise InputError(f"an array of {array.dtype}; write one of floats or integers")
        if array.ndim != 2 or 0 in array.shape:
            raise InputError(f"an array of shape {array.shape}; write one of length × channels")
        if config.channels and array.shape[1] != config.channels:
            raise InputError(
                f"an array of {array.shape[1]} channels, not the {config.channels} of "
                "data.vectors.channels; write as many, or set that key"
            )
        with np.errstate(over="ignore"):
            vectors = array.astype(np.float32)
        if not np.isfinite(vectors).all():
            raise InputError("numbers are NaN or infinite as float32; correct them")
    return np.ascontiguousarray(vectors)
