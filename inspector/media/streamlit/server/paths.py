"""Paths of the server that its checks know: those of Streamlit, and our own."""

import plotly

READY = "/ready"
PLOTLY = f"/plotly-{plotly.__version__}.js"  # browsers keep it until the version changes
HEALTH = "/_stcore/health"
UPLOADS = "/_stcore/upload_file/"  # followed by the session and the id of the file
BROWSER_COOKIE = "sharding_inspector_browser"  # 32 hexadecimal digits that no other browser knows
