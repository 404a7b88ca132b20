# SPDX-License-Identifier: Apache-2.0
"""An engine's main loop around the cache, with the model left out: three users of one system prompt
and one that comes back. Prints what each request had to compute; engine_loop.cc is the same."""

import numpy as np
import pando


def forward(slots: np.ndarray, start: int, end: int) -> None:
    """What a GPU would do for tokens [start, end): write their KV to their slots."""


def serve(cache: pando.PrefixCache, prompt: np.ndarray, who: str) -> None:
    request = cache.start(prompt)  # what is cached is locked, and in request.slots
    match = request.found
    try:
        cache.allocate(request)
    except pando.OutOfCapacity as error:
        print(f"{who:<6} refused: {error}")
        cache.abandon(request)
        return
    forward(request.slots, match.length, len(prompt))
    cache.finish(request)  # the tree takes whole pages, the rest goes back
    why = match.end.name.replace("_", " ")
    print(f"{who:<6} {match.length:4} of {len(prompt):4} tokens from the cache ({why})")


def main() -> None:
    allocator = pando.PagedAllocator(4096, page_size=16)
    cache = pando.PrefixCache(allocator)

    system_prompt = np.arange(1, 1001, dtype=np.int32)
    for who, first in [("ada", 5000), ("ben", 6000), ("cleo", 7000)]:
        question = np.arange(first, first + 200, dtype=np.int32)
        prompt = np.concatenate([system_prompt, question])
        serve(cache, prompt, who)
        if who == "cleo":
            follow_up = np.arange(first + 500, first + 600, dtype=np.int32)
            serve(cache, np.concatenate([prompt, follow_up]), who)  # the next turn
    print(cache.inspect.dump(), end="")
    cache.check()


if __name__ == "__main__":
    main()
