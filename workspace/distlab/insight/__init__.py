"""Pictures of what ranks reported. Nothing here knows how ranks were started.

Each module has a `picture(...)`: `slots` draws hosts as HTML, the others take records as
`RunResult.records(event)` returns them and give a matplotlib figure with an alternative text.
"""
