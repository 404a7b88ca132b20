# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's activation in torch."""

from torch.nn.functional import silu


def silu_and_mul(input, out=None, enable_pdl=None):
    gate, up = input.chunk(2, dim=-1)
    product = silu(gate) * up
    return product if out is None else out.copy_(product)
