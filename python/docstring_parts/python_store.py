# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


def register_store():
    """Makes a store known by name. The factory is called with the store's options as
    keyword arguments, and returns a StoreBackend or an object with these methods:

        exists(keys: list[str]) -> Sequence[bool]
        get(keys: list[str], pages: list[StorePage]) -> Sequence[bool | PageOutcome]
        put(keys: list[str], pages: list[StorePage]) -> Sequence[bool] | None
        remove(keys: list[str]) -> Sequence[bool] | None
        clear() -> None

    and, where it has them: list() -> Iterable[tuple[str, int]] of keys and sizes,
    stats() -> dict | BackendStats, register_memory(address, size_bytes) to hear of
    memory that tags are passed in, and the attributes `name` and `batch_pages` (how
    many pages a call has at most).

    get() fills the buffers of a page and says True, or says False: not there. None
    from put() or remove() means that all went well. Calls come from several
    threads. Bytes are checked against the tag at the end of each page: a store may
    lose, damage or mix up pages, and they are misses. What it raises fails the
    pages of that call and goes to sys.unraisablehook.

    >>> class DictStore:
    ...     def __init__(self, pages=None):
    ...         self.pages = {} if pages is None else pages
    ...     def exists(self, keys):
    ...         return [key in self.pages for key in keys]
    ...     def get(self, keys, pages):
    ...         return [key in self.pages and page.copy_from(self.pages[key])
    ...                 for key, page in zip(keys, pages)]
    ...     def put(self, keys, pages):
    ...         self.pages.update(zip(keys, [page.tobytes() for page in pages]))
    ...     def remove(self, keys):
    ...         for key in keys:
    ...             self.pages.pop(key, None)
    ...     def clear(self):
    ...         self.pages.clear()
    >>> with pando.Store(DictStore()) as store:
    ...     written = store.put(['a'], [b'some bytes']).wait()
    ...     target = bytearray(10)
    ...     read = store.get(['a', 'b'], [target, bytearray(10)]).wait()
    >>> read, target
    ([PageOutcome.done, PageOutcome.missing], bytearray(b'some bytes'))
    >>> pando.register_store('example-dict', DictStore)
    >>> pando.make_store_backend('example-dict').name
    'DictStore'
    """
