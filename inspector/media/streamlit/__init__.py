"""The Streamlit pages and their panels: the only part that knows Streamlit."""
