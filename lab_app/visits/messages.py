"""Messages to visitors who wait for the model, or find every place taken."""

WAITING = "Others have the model: {before} before you."
WAITING_TIME = "Expected wait: {about}, as the last runs went."
LAB_FULL = (
    "All {visits} places of this lab are taken by people who use them now. Reload the page in a minute."
)
