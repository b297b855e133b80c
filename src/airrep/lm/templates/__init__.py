"""Chat templates, which are programs: filled in within limits.

chat    Apply the chat template to an example: tokens as the target LM reads them.
limits  Limits of time and memory for other people's programs in this process.
"""
