"""A table on a page, made of columns of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

PATH_PIXELS = 300  # a path of a usual model, with room for specs beside it on a page 1440 wide


def show(columns: Mapping[str, Sequence[Any]], key: str, **settings: Any) -> Any:
    """Draw the table and give what `st.dataframe` gives; a column `Path` stays in sight."""
    # pandas takes a fifth of a second to import, which the first page, without a table, need not wait for.
    import pandas as pd

    column_config = dict(settings.pop("column_config", {}))
    if "Path" in columns:
        column_config["Path"] = st.column_config.TextColumn(width=PATH_PIXELS, pinned=True)
    return st.dataframe(
        pd.DataFrame(columns), hide_index=True, key=key, column_config=column_config, **settings
    )


def numbers(values: Sequence[float | None], form: str = ",", unit: str = "") -> list[Any]:
    """Numbers, which sort; as text, by `form` and `unit`, where one is unknown and has to say so."""
    if None not in values:
        return list(values)
    return ["unknown" if one is None else f"{one:{form}}{unit}" for one in values]


def of_numbers(columns: Mapping[str, Sequence[Any]], config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of those columns that hold numbers, and not the text that `numbers` makes of some."""
    return {
        name: settings
        for name, settings in config.items()
        if not any(isinstance(value, str) for value in columns[name])
    }
