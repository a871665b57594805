"""Renderers: Streamlit, reports and the terminal."""
