"""Torch without the part of its start that only its compiler needs.

`import torch` also loads `torch._meta_registrations` and with it torch's decompositions: how to
tell the shapes of results without computing them, for torch.compile, torch.export and meta tensors.
That is a quarter of the import (0.3 of 1.3 s), and no verb uses any of it. So in a process of
`gsolve` an empty module stands in its place until the compiler is imported, by a user's plugin say.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

METAS = "torch._meta_registrations"
NEEDED_BY = ("torch._dynamo", "torch._inductor")


class _LoadMetas:
    """Finds nothing, but is asked first: what needs the metas gets them."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in NEEDED_BY and "torch" in sys.modules:
            sys.meta_path.remove(cls)
            del sys.modules[METAS]
            import_module(METAS)
        return None


def defer_metas() -> None:
    """Call it before torch is imported; afterwards it does nothing."""
    if "torch" not in sys.modules:
        sys.modules[METAS] = ModuleType(METAS)
        sys.meta_path.insert(0, _LoadMetas)
