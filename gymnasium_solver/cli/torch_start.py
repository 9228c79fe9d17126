"""Torch without the part of its start that only its compiler needs.

`import torch` also loads `torch._meta_registrations` and with it torch's decompositions: how to
tell the shapes of results without computing them, for torch.compile, torch.export and meta tensors.
That takes 0.2 s of every command, and no verb uses any of it. So in a process of `gsolve` it is
left out until the compiler is imported, by a user's plugin say. Only for the version of torch that
this was tried with: any other starts as it always does.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

TRIED = "2.13."
METAS = "torch._meta_registrations"
NEEDED_BY = ("torch._dynamo", "torch._inductor")


class _NoMetas:
    """The loader of an empty module in their place."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        # The one thing that comes with them and is needed, or torch.Generator cannot be called.
        meta = import_module("torch._opaque_base").OpaqueBaseMeta
        sys.modules["torch"]._C._set_generator_metaclass(meta)


class _Finder:
    """Asked before all others: leaves the metas out, and gets them for what needs them."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == METAS and sys.modules["torch"].__version__.startswith(TRIED):
            return ModuleSpec(name, _NoMetas)  # type: ignore[arg-type]
        if name in NEEDED_BY:
            sys.meta_path.remove(cls)
            spec = getattr(sys.modules.get(METAS), "__spec__", None)
            if spec is not None and spec.loader is _NoMetas:
                del sys.modules[METAS]
                import_module(METAS)
        return None


def defer_metas() -> None:
    """Call it before torch is imported; afterwards it does nothing."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder)
