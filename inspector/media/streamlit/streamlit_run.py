"""Run `streamlit run ARGS…` without the settings and secrets of the current folder.

Streamlit reads `.streamlit/config.toml` and `.streamlit/secrets.toml` there. They could let other sites in,
fetch a theme from any address, or sign users in at another provider. Those of the user's home and of the app
stay.
"""

from __future__ import annotations

from streamlit import config, file_util
from streamlit.web import cli


def main() -> None:
    """Run the server. Its arguments are those of this process."""
    all_files = config.get_config_files

    def without_current_folder(file_name: str) -> list[str]:
        home = file_util.get_streamlit_file_path(file_name)
        here = file_util.get_project_streamlit_file_path(file_name)
        return [file for file in all_files(file_name) if file == home or file != here]

    config.get_config_files = without_current_folder
    cli.main(prog_name="streamlit")
