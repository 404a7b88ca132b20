# SPDX-License-Identifier: Apache-2.0
"""Stands in for IPython, which SGLang imports and an engine does not use."""
