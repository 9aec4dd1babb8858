"""The append-only record of a run. It is written as the run proceeds, and read by everything else.

What fails raises a `JournalError`: a journal, a run or a folder is missing, damaged, locked, cannot be read or
written, or needs a newer version. A `DiskFullError` means that no space is left.
"""
