"""Pictures of a run: pure functions from a record to a Plotly figure or a piece of HTML.

Nothing here runs a model, keeps state or knows the web framework. Texts of people and models are escaped
where they enter HTML. ``style.css`` and ``view.js`` in :mod:`viz.base` belong to the HTML views.
"""
