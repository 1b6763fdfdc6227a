"""A fleet on EC2: the instance that a worker runs on, its Auto Scaling Group, and how large that group should be.

botocore and cryptography, which ``millpond[aws]`` installs, are imported when they are used. The metadata of an
instance and its notices need only the SDK.
"""
