"""Amazon's side of a fleet: the machine a worker runs on, the group it belongs to, and how large that group should be.

What needs botocore or cryptography imports it when it is used: they come with ``millpond[aws]``. The metadata of a
machine and its notices need the SDK alone.
"""
