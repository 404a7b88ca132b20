# SPDX-License-Identifier: Apache-2.0
"""The names that SGLang imports."""


def HTML(*_args, **_kwargs):
    pass


def display(*_args, **_kwargs):
    pass
