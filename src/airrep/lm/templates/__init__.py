"""Chat templates, which are programs: filled in within limits.

chat  Chat templates applied to examples, within limits: tokens as the target LM reads them.
"""
