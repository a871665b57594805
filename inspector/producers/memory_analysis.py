"""The compiler's own count of what a program holds on one device."""

from __future__ import annotations

from typing import Any

from inspector.core.snapshot import Memory


def memory_of(executable: Any) -> Memory | None:
    """The compiler's own analysis of one device's memory; None where it gives none."""
    analysis = executable.memory_analysis()
    if analysis is None:
        return None
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
        # Absent in some versions of jaxlib, and then not known.
        peak=getattr(analysis, "peak_memory_in_bytes", None),
    )
