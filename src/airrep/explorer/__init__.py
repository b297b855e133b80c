"""A page to explore an index in the browser, served by this machine.

agents     Tools for agents over MCP: the page's questions with short answers.
answers    Models of the API's answers, which its OpenAPI document shows.
explorer   State of the served page: one or two indexes, queries, facets, caches.
facets     Facets: fields with few values, the counts of these values, and their rows.
notebook   Notebook widget that asks an index questions.
points     Map of all examples, their positions and colours, as one binary answer.
questions  Answers the page's questions as JSON values, independent of HTTP.
requests   Models that check the requests of the page and of other programs.
routes     Routes of the API, their OpenAPI document, and an HTML page of it.
security   Access to the server: token, allowed hosts, size limits, socket.
serving    Serves the page and the API over HTTP: routes, streamed lines, errors.
turns      Queue of questions that a few threads answer; similar questions share work.
"""
