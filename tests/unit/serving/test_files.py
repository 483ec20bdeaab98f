"""Files that the server keeps for its clients."""

import asyncio

from tests.helpers.serving.served import limits
from transformer.serving.interfaces.files import Files


def test_the_oldest_files_go_when_all_are_too_large_together() -> None:
    files = Files(limits(file_bytes=10))

    async def contents() -> list[bytes | None]:
        names = [await files.add(b"0123456789", f"{number}.txt") for number in range(101)]
        return [await files.read(name) for name in names]

    with files.folder():
        first, *others = asyncio.run(contents())
    # A hundred files of the largest size fit.
    assert first is None
    assert others == [b"0123456789"] * 100
