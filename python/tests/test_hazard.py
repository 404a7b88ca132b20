# SPDX-License-Identifier: Apache-2.0
"""The policy that learns from requests when prefixes come back."""

import numpy as np
import pando
import pytest


def serve(cache: pando.PrefixCache, tokens: np.ndarray) -> int:
    """One request, with a checkpoint before its end. The tokens that were cached."""
    request = cache.start(tokens)
    length = request.cached_length
    cache.allocate(request)
    cache.checkpoint(request, len(tokens) - 1, chunked=True)
    cache.finish(request)
    return length


def hit_tokens(policy) -> int:
    """One prompt comes back every few requests, between many that never do."""
    cache = pando.PrefixCache(pando.PagedAllocator(64 * 16, page_size=16), policy=policy)
    popular = np.arange(16 * 16)
    hits = 0
    for i in range(600):
        if i % 6 == 0:
            hits += serve(cache, popular)
        else:
            serve(cache, 10_000 * (i + 1) + np.arange(12 * 16))
    cache.check()
    return hits


def test_hazard_learns_what_comes_back() -> None:
    learned = hit_tokens("hazard")
    assert learned > hit_tokens("lru")
    assert hit_tokens(pando.HazardOptions()) == learned
    assert hit_tokens(pando.HazardOptions(cost_aware=True, attention_tokens=1000.0)) > 0


def test_hazard_measures_what_prefills_cost() -> None:
    allocator = pando.PagedAllocator(64)
    cache = pando.PrefixCache(allocator, policy=pando.HazardOptions(cost_aware=True))
    for i in range(1, 40):
        cache.tiers.report_prefill(100, 0.1 + 0.01 * i, cached_tokens=100 * i)
    cache.paths.insert([1, 2, 3], allocator.alloc(3))
    assert cache.evict(3).tokens == 3
    with pytest.raises(pando.InvalidArgument, match="100 tokens in 0 s"):
        cache.tiers.report_prefill(100, 0.0, cached_tokens=5)


@pytest.mark.parametrize("tokens", [0, -1, float("inf"), float("nan")])
def test_hazard_refuses_costs_that_make_no_sense(tokens: float) -> None:
    options = pando.HazardOptions(attention_tokens=tokens)
    with pytest.raises(pando.InvalidArgument, match="expected a number of tokens above 0"):
        options.validate()
    with pytest.raises(pando.InvalidArgument, match="attention_tokens is"):
        pando.PrefixCache(pando.PagedAllocator(16), policy=options)


def test_options_name_a_policy() -> None:
    def survivor(**fields) -> int:
        allocator = pando.PagedAllocator(16)
        cache = pando.PrefixCache(allocator, pando.CacheOptions(policy="mru"), **fields)
        for token in (1, 2, 3):
            cache.paths.insert([token], allocator.alloc(1))
        cache.evict(2)
        return next(key for key in (1, 2, 3) if cache.paths.probe([key]))

    assert survivor() == 1
    assert survivor(policy="lru") == 3  # what is given wins
    with pytest.raises(pando.InvalidArgument, match="slru, hazard"):
        pando.PrefixCache(pando.PagedAllocator(16), pando.CacheOptions(policy="hazzard"))


def test_policies_that_are_none() -> None:
    with pytest.raises(pando.InvalidArgument, match="slru, hazard"):
        pando.PrefixCache(pando.PagedAllocator(16), policy="hazzard")
    with pytest.raises(pando.InvalidArgument, match="a name, HazardOptions or an object with key"):
        pando.PrefixCache(pando.PagedAllocator(16), policy=7)
