"""Compiled kernels on disk, named by what they were made from.

The name of an entry is the digest of what the code is made from, the target with its features, and the version of LLVM.
So a kernel is found again only where it may run.
"""

from __future__ import annotations

import hashlib
import os

from shoal.base.code_cache import CodeCache as KernelCache
from shoal.base.code_cache import cache_folder
from shoal.recurrent.llvm.target import Target

__all__ = ["KernelCache", "cache_folder", "key_of", "user_cache"]


def key_of(made_from: str, target: Target, version: str) -> str:
    """The name of an entry."""
    parts = (made_from, target.triple, target.cpu, target.features, version)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def user_cache() -> KernelCache:
    """The cache of this user."""
    return KernelCache(cache_folder(os.environ))
