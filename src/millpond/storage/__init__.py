"""Storage: one interface for files in a local folder and in any S3-compatible bucket.

Files are uploaded and downloaded at signed URLs, which contain what they allow and when they expire. Signing needs no
network call and no query. It uses this machine's clock, as for S3.
"""

from millpond.storage.storage import Object, Storage, check_path, open_storage
from millpond.wire import Signed

__all__ = ["Object", "Signed", "Storage", "check_path", "open_storage"]
