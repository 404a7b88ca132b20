# SPDX-License-Identifier: Apache-2.0
"""What all tests share: stand-ins and references beside them can be imported; hypothesis prints its
seeds, and takes more examples where asked to (PANDO_EXAMPLES)."""

import os
import sys
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parent))

hypothesis.settings.register_profile(
    "pando",
    max_examples=int(os.environ.get("PANDO_EXAMPLES", "50")),
    deadline=None,
    print_blob=True,
)
hypothesis.settings.load_profile("pando")
