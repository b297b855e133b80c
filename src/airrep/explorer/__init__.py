"""A page to explore an index in the browser, served by this machine.

agents     Tools for agents: the page's questions, answered in short, by MCP.
answers    Answers of the routes, each as one model that the API document shows.
explorer   The state of a page: an index, perhaps another beside it, queries, facets.
facets     Facets: values of fields with their counts, and the rows that have them.
notebook   A widget that asks an index in a notebook.
points     Places and colours of all examples, as one binary answer.
questions  Questions that the page asks, answered as JSON values; nothing here knows of HTTP.
requests   Requests that the page and other programs may make, each checked as one model.
routes     Routes of the API, its document (OpenAPI), and a page of it without script.
security   Who may ask, from where, how much; the token and the socket.
serving    Serve the page and the API: routes, lines, errors.
turns      Turns: a few threads answer questions, the others wait.
"""
