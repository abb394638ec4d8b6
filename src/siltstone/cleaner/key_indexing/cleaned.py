"""Index a segment that a pass has left."""

from siltstone.cleaner.batch_modes import TrackedModes
from siltstone.cleaner.chunks import iter_chunks
from siltstone.cleaner.key_indexing.entries import KeyEntries
from siltstone.log.filesystem import File


def index_cleaned(file: File, base_offset: int, size_bytes: int, hash_key: bytes) -> bytes:
    """Index a segment that a pass has left: every key once, nothing aborted."""
    entries = KeyEntries(base_offset, hash_key)
    # The commit has just checked every byte.
    for chunk in iter_chunks(file, 0, size_bytes, TrackedModes(())):
        entries.add(file, chunk)
    return entries.pack(file, size_bytes)
