"""Tools for agents, by the Model Context Protocol.

server  Serve the tools by MCP, over standard streams or HTTP.
tools   Tools for agents: the page's questions, with short answers.
"""
