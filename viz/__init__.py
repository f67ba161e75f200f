"""Pictures of a run: pure functions from a record to a Plotly figure or a piece of HTML.

Nothing here runs a model, keeps state or knows the web framework. Texts that come from a person or a
model are escaped where they enter HTML. ``style.css`` and ``view.js`` in :mod:`viz.base`
belong to the HTML views.
"""
