# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's norms in torch."""

from torch.nn.functional import rms_norm


def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    normed = rms_norm(input, (input.shape[-1],), weight, eps)
    return normed if out is None else out.copy_(normed)


def fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    residual.add_(input)
    input.copy_(rmsnorm(residual, weight, eps))


def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    return rmsnorm(input, weight + 1, eps, out)


def gemma_fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    fused_add_rmsnorm(input, residual, weight + 1, eps)
