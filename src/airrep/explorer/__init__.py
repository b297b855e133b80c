"""A page to explore an index in the browser, served by this machine.

explorer   The state of a page: an index, perhaps another beside it, queries, facets.
facets     Facets: values of fields with their counts, and the rows that have them.
questions  Questions that the page asks, answered as JSON values; nothing here knows of HTTP.
requests   Requests that the page may make, each checked as one model.
security   Who may ask, from where, and how much: checked before any question is read.
serving    Serve the page: routes, turns, errors; a socket, a token.
texts      Texts of examples as JSON: cut, with the places of same words.
"""
