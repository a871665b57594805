"""Run `streamlit run ARGS…` without the settings and secrets of the current folder.

Streamlit reads `.streamlit/config.toml` and `.streamlit/secrets.toml` there. They could let other sites in,
fetch a theme from any address, or sign users in at another provider. Those of the user's home and of the app
stay.
"""

from inspector.media.streamlit import streamlit_internals


def main() -> None:
    """Run the server. Its arguments are those of this process."""
    streamlit_internals.run_without_current_folder()
