"""Generate the JSON Schema of search results: `python -m inspector.search.schema` writes it."""

import json

from inspector.files import output
from inspector.records import schema
from inspector.search.result import FORMAT, SCHEMA_PATH, VERSION, SearchResult


def text() -> str:
    """Return the schema as JSON text."""
    plain = schema.schema(SearchResult, "Search for the best layout", FORMAT, VERSION)
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    output.write_text(text(), SCHEMA_PATH)
