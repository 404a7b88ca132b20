# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class AllocatorState:
    """A remembered state of a PagedAllocator, see PagedAllocator.backup_state()."""


class WindowAllocatorState:
    """A remembered state of a WindowAllocator, see WindowAllocator.backup_state()."""


class PagedAllocator:
    """...

    >>> allocator = pando.PagedAllocator(1024, page_size=16)
    >>> slots = allocator.alloc(32)
    >>> allocator.available
    992
    """

    def alloc(self):
        """Slots of whole pages: `num_tokens` of them in a new array, or as many as `out`
        has room for; a multiple of the page size. All or nothing. O(pages).

        >>> allocator = pando.PagedAllocator(64, page_size=16)
        >>> allocator.alloc(16)[:3]
        array([16, 17, 18])
        """

    def alloc_extend(self):
        """Grows request i from `prefix_lens[i]` to `seq_lens[i]` tokens: first what is left
        of its open page (the one of `last_slots[i]`, the slot of its last token; ignored
        when the prefix fills its pages), then whole pages, then a new open page. Returns
        the new slots, request by request, in a new array or in `out`.

        >>> allocator = pando.PagedAllocator(64, page_size=16)
        >>> allocator.alloc_extend([0], [3], [0])
        array([16, 17, 18])
        >>> allocator.alloc_extend([3], [5], [18])
        array([19, 20])
        """

    def alloc_decode(self):
        """...

        >>> allocator = pando.PagedAllocator(64, page_size=16)
        >>> allocator.alloc_decode([1, 1], [0, 0])
        array([16, 32])
        """

    def free(self):
        """...

        Freeing what is not handed out raises BrokenContract.

        >>> allocator = pando.PagedAllocator(64, page_size=16)
        >>> allocator.free(allocator.alloc(32))
        >>> allocator.available
        64
        """

    def backup_state(self):
        """...

        >>> allocator = pando.PagedAllocator(64)
        >>> state = allocator.backup_state()
        >>> slots = allocator.alloc(10)
        >>> allocator.restore_state(state)
        >>> allocator.available
        64
        """


class WindowAllocator:
    """...

    >>> slots = pando.WindowAllocator(256, 64, page_size=16)
    >>> mine = slots.alloc(32)
    >>> slots.free_window(mine[:16])
    >>> slots.full_available, slots.window_available
    (224, 48)
    """

    def move_window(self):
        """Gives `to_page`, which has none, the window page of `from_page`, which has one."""

    def full_capacity(self):
        """Tokens that fit into the full side."""

    def full_available(self):
        """Tokens that are free on the full side."""

    def window_capacity(self):
        """Tokens that fit into the window side."""

    def window_available(self):
        """Tokens that are free on the window side."""


class StateSlot:
    """Where one snapshot of recurrent state lives: slot `index` of the pool with this
    id. One that names nothing is false.

    >>> bool(pando.StateSlot())
    False
    """


class StateAllocator:
    """...

    >>> states = pando.StateAllocator(4)
    >>> states.alloc().index, states.available
    (0, 3)
    """


class SlotAllocator:
    """...

    >>> slots = pando.SlotAllocator(4)
    >>> slot = slots.alloc()
    >>> slot, slots.version(slot), slots.free_count
    (0, 1, 3)
    """


class RequestTable:
    """...

    >>> table = pando.RequestTable(8, row_len=1024)
    >>> row = table.alloc()
    >>> table.write(row, 0, [16, 17, 18])
    >>> table.row(row)[:4]
    array([16, 17, 18,  0])
    """

    def alloc(self):
        """The lowest free row; None when all are taken."""

    def write(self):
        """Copies slots to positions [offset, offset + len(slots)) of the row."""

    def row(self):
        """...

        The array is the row itself: writing to it writes to the table, which stays as
        long as the array does.
        """


def make_token_allocator():
    """...

    >>> pando.make_token_allocator(8).alloc(3)
    array([1, 2, 3])
    """
