"""The fast disk: contents, limits, and the names by which tenants read them."""

from shoal.cache.store.index import ObjectInfo
from shoal.cache.store.links import META, folder_name
from shoal.cache.store.store import CHUNK_BYTES, Fill, Held, Limits, Store, Usage, digest_of

__all__ = ["CHUNK_BYTES", "META", "Fill", "Held", "Limits", "ObjectInfo", "Store", "Usage", "digest_of", "folder_name"]
