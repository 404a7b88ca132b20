# SPDX-License-Identifier: Apache-2.0
"""A store whose answers take long enough that something can happen meanwhile: a file per page, read
after a pause. Each engine process that imports :func:`install` can name it in its arguments.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

NAME = "slow-files"
PAUSE_S = 0.2


class SlowFiles:
    def __init__(self) -> None:
        self._directory = Path(os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"])

    def exists(self, keys: list[str]) -> list[bool]:
        return [self._file(key).exists() for key in keys]

    def get(self, keys: list[str], pages: list[Any]) -> list[bool]:
        time.sleep(PAUSE_S)
        return [page.copy_from(self._file(key).read_bytes()) for key, page in zip(keys, pages)]

    def put(self, keys: list[str], pages: list[Any]) -> None:
        for key, page in zip(keys, pages):
            self._file(key).write_bytes(page.tobytes())

    def remove(self, keys: list[str]) -> None:
        for key in keys:
            self._file(key).unlink(missing_ok=True)

    def clear(self) -> None:
        for file in self._directory.iterdir():
            file.unlink()

    def _file(self, key: str) -> Path:
        return self._directory / key.replace("/", "-")


def install() -> None:
    """Registers the store, and says on the log of every aborted request whether its pages were on
    the way."""
    import pando
    from pando.sglang.hicache import PandoHiCache

    pando.register_store(NAME, SlowFiles)
    release = PandoHiCache.release_aborted_request

    def release_and_tell(self: Any, req_id: Any) -> None:
        if req_id in self._prefetches:
            print(f"aborted while {self.core.tiers.under_way().fetches} fetches were under way", flush=True)
        release(self, req_id)

    PandoHiCache.release_aborted_request = release_and_tell
