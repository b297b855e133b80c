"""An index that several machines make together.

joining  Join the parts of an index.
parts    Make one part of an index.
"""
