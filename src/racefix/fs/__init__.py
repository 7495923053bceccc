"""Building blocks that hold on a directory shared by hosts which see each other's changes late.

Each module stands alone and trusts no lock, errno, clock, pid or stat() from another host.
"""
