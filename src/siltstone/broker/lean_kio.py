"""Load kio without what it only needs in tests.

Where hypothesis is installed, kio makes strategies for its types: half a second of every start, and
17 MB for as long as the process lives. A test that has loaded hypothesis before gets them still.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # so that it cannot be imported
    try:
        import kio.static._phantom  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
