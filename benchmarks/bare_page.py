"""A minimal page with one field and one Plotly chart, with which the dashboard is compared."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

st.set_page_config(layout="wide")
seed = int(st.text_input("Seed", "0", key="seed"))
cells = [[(row * 4 + column) * (seed + 1) % 8 for column in range(4)] for row in range(2)]
st.plotly_chart(go.Figure(go.Heatmap(z=cells, showscale=False)), key="chart")
