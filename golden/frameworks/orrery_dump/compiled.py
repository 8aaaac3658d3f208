"""Modules that torch.compile has compiled.

Hooks inside a compiled module run only if they are there when it is traced, and each ends a graph.  So there are two ways:

    inside      what was compiled is forgotten, and traced again with the hooks: everything is seen, but nothing is fused across a module
    borders     compiled modules stay as they are: their inputs and results are seen, and Recorder.left_out has the rest
"""
from .errors import DumpError

WAYS = ("inside", "borders")


def regions(model, clean):
    """{name: module} of all compiled modules, by torch.compile(module) or module.compile()."""
    return {clean(name): module for name, module in model.named_modules()
            if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None}


def around(name, regions):
    """The compiled module that a module is inside of; None: it is one itself, or is outside."""
    return next((r for r in regions if name != r and (r == "" or name.startswith(r + "."))), None)


def check(way, regions):
    """Refuse a way that does not exist, or that a module's own settings exclude."""
    if way not in WAYS:
        raise DumpError(f"compiled {way!r} is not one of {', '.join(WAYS)}")
    for name, module in regions.items() if way == "inside" else ():
        if getattr(getattr(module, "dynamo_ctx", None), "fullgraph", False):
            raise DumpError(f"{name or 'the model'} is compiled with fullgraph=True, so hooks inside it cannot run: give compiled=\"borders\"")


def reset():
    """Forget what was compiled, so that it is traced again, with the hooks that are there then."""
    __import__("torch").compiler.reset()


def uncompiled(function):
    """A hook that ends the graph and runs as it is written."""
    return __import__("torch").compiler.disable(function)


def check_seen(model, clean, watches, seen):
    """After the run: a module inside a compiled one whose hooks have not run."""
    found = regions(model, clean)
    for w in watches:
        region = around(w.module, found)
        if region is not None and w.name not in seen:
            raise DumpError(f"{region or 'the model'} is compiled, and hooks of {w.module} inside it did not run: make the Recorder after torch.compile "
                            "and before the pass, or give compiled=\"borders\"")
