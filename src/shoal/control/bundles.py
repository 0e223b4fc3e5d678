"""Working files that clients upload: kept by content, so that the same files are stored once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from shoal.core import Invalid, Unavailable


async def add_bundle(folder: Path, chunks: AsyncIterator[bytes], *, limit_bytes: int) -> str:
    """Store an archive; returns `sha256:HEX`. Raises Invalid when it is larger than the limit, Unavailable when
    it cannot be written; nothing is left behind then."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest, size = hashlib.sha256(), 0
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".upload-")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit_bytes:
                    raise Invalid(
                        f"the files are larger than {limit_bytes / 2**20:.0f} MiB", where="files",
                        hint="leave data out of `files` and name it under `inputs`",
                    )  # fmt: skip
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / digest.hexdigest())
    except OSError as error:
        raise Unavailable(f"the upload could not be stored: {error.strerror}", where=str(folder)) from error
    finally:
        part.unlink(missing_ok=True)
    return f"sha256:{digest.hexdigest()}"
