"""Storage: where files are. One interface over a folder of this machine and over any S3-compatible bucket.

A file goes in and out by a signed URL: a request that says itself what it may do, and until when. To sign one takes no
network call and no query. What is signed goes by this machine's clock, as it does for S3.
"""

from millpond.storage.storage import Object, Storage, check_path, open_storage
from millpond.wire import Signed

__all__ = ["Object", "Signed", "Storage", "check_path", "open_storage"]
