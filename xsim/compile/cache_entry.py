"""What is known of a compiled function without tracing it, kept on disk for later processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from typing import Any

from xsim.cache import read_cached, write_cached
from xsim.compile.fingerprint import fingerprint

__all__ = ["CacheEntry"]


class CacheEntry:
    """Values by key, such as the number of operations of a program.

    fingerprint: a hash of all that they depend on, the name of a file of the cache. None: they are kept in this process alone."""

    def __init__(self, fingerprint: str | None):
        self.fingerprint = fingerprint
        self._values: dict[Hashable, Any] | None = None

    def get(self, key: Hashable) -> Any:
        """The value of a key, None if it is not known."""
        if self._values is None:
            self._values = self._stored()
        return self._values.get(key)

    def put(self, key: Hashable, value) -> Any:
        """Keep the value of a key, and return it."""
        self._values = {**self._stored(), **(self._values or {}), key: value}
        if self.fingerprint is not None:
            write_cached(self._file, pickle.dumps(self._values))
        return value

    def found(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key, or that of make(), which is kept."""
        known = self.get(key)
        return self.put(key, make()) if known is None else known

    def derived(self, *names) -> CacheEntry:
        """The entry of a function that is made of this one, such as its derivative. names: how."""
        return CacheEntry(None if self.fingerprint is None else fingerprint(self.fingerprint, *names))

    @property
    def _file(self) -> str:
        return f"{self.fingerprint}.function"

    def _stored(self) -> dict[Hashable, Any]:
        """The values that this or another process has kept on disk."""
        data = None if self.fingerprint is None else read_cached(self._file)
        return {} if data is None else pickle.loads(data)
