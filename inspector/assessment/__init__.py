"""The verdict figures of a Snapshot, computed once: `assess`. Two of them compared: `verdict`."""

from inspector.assessment.assess import assess, assess_candidate, step_of, step_time
from inspector.assessment.because import axes_text, because, latency_text, memory_words, part_text
