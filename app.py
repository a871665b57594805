"""The dashboard, for `streamlit run app.py` in a checkout."""

import streamlit as st

from inspector.media.streamlit.server import PAGES, lifespan

app = st.App(PAGES, lifespan=lifespan)
