"""Rows of Parquet files, from any row on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transformer.common.errors import InputError
from transformer.data.text.lines import opened_file

_ROWS = 8_192
"""Rows that are unpacked together."""


@contextmanager
def opened_table(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of the disk; raises InputError if it, or a row of it, cannot be read."""
    with opened_file(path) as file:
        try:
            with pq.ParquetFile(file) as table:
                yield table
        except (OSError, ValueError, pa.ArrowException) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"{path}: not a Parquet file that can be read ({reason}); write it again"
            ) from error


def read_rows(
    table: pq.ParquetFile, columns: Sequence[str], start: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield these columns of the rows from ``start`` on; whole row groups before it are skipped."""
    first = 0
    groups = list(range(table.num_row_groups))
    while groups and first + table.metadata.row_group(groups[0]).num_rows <= start:
        first += table.metadata.row_group(groups.pop(0)).num_rows
    if not groups:
        return
    # No threads: processes are forked meanwhile.
    batches = table.iter_batches(_ROWS, row_groups=groups, columns=columns, use_threads=False)
    for batch in batches:
        yield from batch.slice(min(max(start - first, 0), batch.num_rows)).to_pylist()
        first += batch.num_rows
