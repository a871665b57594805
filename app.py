"""The dashboard, for `streamlit run app.py` in a checkout."""

import streamlit as st

from inspector.media.streamlit.server import MIDDLEWARE, PAGES, ROUTES, lifespan

app = st.App(PAGES, lifespan=lifespan, routes=ROUTES, middleware=MIDDLEWARE)
