"""Pictures of a Snapshot: data in, a Plotly figure or text out; one picture a file."""
