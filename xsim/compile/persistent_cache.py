"""Programs that XLA has compiled, kept on disk by JAX's persistent compilation cache. Those of LLVM are always kept (`xsim.cache`)."""

from __future__ import annotations

from pathlib import Path

import jax

from xsim.cache import cache_folder, remove_oldest

__all__ = ["use_compilation_cache"]

MIN_SECONDS = 1.0
"""Programs that compile faster are not kept."""


def use_compilation_cache(folder=None) -> Path | None:
    """Keep programs that XLA compiles for more than a second on disk: a later process that needs the same program only traces it.

    folder: where; None: ``xla`` in xsim's cache (environment variable ``XSIM_CACHE_DIR``, else ``~/.cache/xsim``). Returns the folder; None
    if there is none that only this user can write to. A folder that JAX was told to use (``JAX_COMPILATION_CACHE_DIR``) stays as it is. The
    commands ``xsim demo``, ``view`` and ``train`` call it. It sets options of JAX for the whole process.
    """
    chosen = jax.config.jax_compilation_cache_dir
    if folder is None and chosen is not None:
        return Path(chosen)
    own = cache_folder()
    folder = Path(folder) if folder is not None else own / "xla" if own else None
    if folder is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in remove_oldest(folder, "*-cache"):
        old.with_name(f"{old.name.removesuffix('-cache')}-atime").unlink(missing_ok=True)  # beside it where JAX limits the size
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
    return folder
