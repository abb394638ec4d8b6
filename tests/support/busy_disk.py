"""A disk that takes its time, so that threads meet where they rarely do."""

import threading
from collections.abc import Callable, Sequence

from siltstone.log.filesystem import File, FileSystem


class BusyDisk(FileSystem):
    """Lets another thread go on while it writes, as a disk does that takes its time."""

    meanwhile: Callable[[], None] | None = None

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        task, self.meanwhile = self.meanwhile, None
        if task is not None:
            self.other = threading.Thread(target=task)
            self.other.start()
            self.other.join(timeout=0.05)  # It may have to wait for this write.
        super().write(file, position, buffers)
