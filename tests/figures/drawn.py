"""Read cells, points and texts from the data that a figure sends to the browser."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go


def spec(figure: go.Figure) -> dict[str, Any]:
    """Return the figure as the browser gets it."""
    return json.loads(figure.to_json())


def size_bytes(figure: go.Figure) -> int:
    return len(figure.to_json())


def traces(figure: go.Figure, kind: str) -> list[dict[str, Any]]:
    return [trace for trace in spec(figure)["data"] if trace["type"] == kind]


def matrix(value: Any) -> np.ndarray:
    """A matrix that was written as lists or as base64; gaps are NaN."""
    if isinstance(value, dict):
        shape = tuple(int(part) for part in str(value["shape"]).split(","))
        flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
        return flat.reshape(shape).astype(float)
    return np.array([[np.nan if cell is None else cell for cell in row] for row in value], dtype=float)


def cells(figure: go.Figure) -> list[tuple[float, ...]]:
    """Return (left, right, top, bottom, z) of every drawn cell of all heatmaps."""
    found = []
    for heatmap in traces(figure, "heatmap"):
        for row, numbers in enumerate(matrix(heatmap["z"])):
            for column, number in enumerate(numbers):
                if not np.isnan(number):
                    x, y = heatmap["x"], heatmap["y"]
                    found.append((x[column], x[column + 1], y[row], y[row + 1], float(number)))
    return found


def at(found: list[tuple[float, ...]], x: float, y: float) -> float:
    """Return the z of the one of these `cells` at a place."""
    (number,) = [z for left, right, top, bottom, z in found if left < x < right and top < y < bottom]
    return number


def points(figure: go.Figure) -> list[tuple[float, float, Any, str]]:
    """(x, y, customdata, hover) of every point that can be selected."""
    (scatter,) = [trace for trace in traces(figure, "scatter") if trace.get("opacity") == 0]
    custom = scatter["customdata"]
    if isinstance(custom, dict):
        custom = matrix(custom).ravel().astype(int).tolist()
    return list(zip(scatter["x"], scatter["y"], custom, scatter["text"], strict=True))


def texts(figure: go.Figure) -> list[str]:
    """Return every string in the figure."""

    def strings(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        if isinstance(value, dict):
            return [text for part in value.values() for text in strings(part)]
        if isinstance(value, list):
            return [text for part in value for text in strings(part)]
        return []

    return strings(spec(figure))
