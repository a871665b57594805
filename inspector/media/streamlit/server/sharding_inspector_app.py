"""The script that `sharding-inspector dashboard` gives to `streamlit run`.

Streamlit puts the folder of its script in front of `sys.path`, so this folder holds no module whose
name a user's own module could have.
"""

import streamlit as st

from inspector.media.streamlit.server import MIDDLEWARE, PAGES, ROUTES, lifespan

app = st.App(PAGES, lifespan=lifespan, routes=ROUTES, middleware=MIDDLEWARE)
