"""The web page: widgets, handlers and styles. It draws what the engine returns and touches no tensor."""

import os

# Read by the web framework when it is imported: nothing is reported to anyone.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
