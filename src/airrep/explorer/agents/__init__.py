"""Tools for agents, by the Model Context Protocol.

server  Serve the tools by the Model Context Protocol: over standard input and output, or HTTP.
tools   Tools for agents: what each asks, and its short answer; made of the questions of the page.
"""
