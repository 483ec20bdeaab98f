"""A service leaves nothing behind."""

import asyncio
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.serving.served import limits
from transformer.serving.batch_translation import Options
from transformer.serving.languages import Direction, Directions
from transformer.serving.request_queue import RequestQueue


def test_a_closed_service_frees_its_model() -> None:
    translator = tiny_translator(ffn_dim=64)
    direction = Direction("en", "de", translator)
    with ThreadPoolExecutor(1) as pool:
        queue = RequestQueue(
            Directions([direction]), limits(), batch_tokens=100, cache=10, thread=pool
        )
        options = Options(direction, alternatives=2, links=True, near_best=0.5)
        [answer] = asyncio.run(queue.translate(["a dog runs ."], options))
        queue.batcher.close()
    assert answer.alternatives(2) and answer.sentences[0].links
    model = weakref.ref(translator)
    del translator, direction, queue, options
    gc.collect()
    assert model() is None


def test_equal_requests_share_a_translator() -> None:
    direction = Direction("en", "de", tiny_translator())
    wide = direction.wider(3)
    assert wide is direction.wider(3)
    assert wide is not direction.wider(4)
    assert wide.translator.search.nbest == 3
