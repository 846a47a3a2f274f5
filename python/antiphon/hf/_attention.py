"""Attention masks that torch.func.vmap can handle.

The models of transformers leave a mask out where no token is padding. Whether that is so they read from the data, which vmap cannot do.
Here a mask is always made. The result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

#: The name under which transformers knows it.
NAME = "antiphon_sdpa"


def _always_masked(*args: Any, **kwargs: Any) -> Any:
    return sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


AttentionInterface.register(NAME, sdpa_attention_forward)
AttentionMaskInterface.register(NAME, _always_masked)


@contextmanager
def always_masked(model: nn.Module) -> Iterator[None]:
    """Within it, every part of a model that has the attention "sdpa" makes its masks whatever the data are."""
    found = {id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None}
    changed = [config for config in found.values() if getattr(config, "_attn_implementation", None) == "sdpa"]
    try:
        for config in changed:
            config._attn_implementation = NAME
        yield
    finally:
        for config in changed:
            config._attn_implementation = "sdpa"
