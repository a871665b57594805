"""A minimal page with one field and two Plotly charts, with which the dashboard is compared."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

st.set_page_config(layout="wide")
seed = int(st.text_input("Seed", "0", key="seed"))
for key, place in zip(("first", "second"), st.columns(2), strict=True):
    cells = [[(row * 4 + column) * (seed + 1) % 8 for column in range(4)] for row in range(2)]
    place.plotly_chart(go.Figure(go.Heatmap(z=cells, showscale=False)), key=key)
