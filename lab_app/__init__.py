"""The web page: widgets, handlers and styles. It draws what the engine returns and touches no tensor."""

import os

# The web framework reads this when it is imported; it then reports nothing to its makers.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
