class DumpError(Exception):
    """What cannot be recorded, in one line: which tensor, what it has, what would be right."""
