"""The platform of a compiled text, from texts of each compiler."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.hlo.module import platform_of

TEXT = """HloModule m, is_scheduled=true
ENTRY main {{
  x = f32[16,128]{layout} parameter(0)
  ROOT y = f32[16,128]{layout} negate(x){attributes}
}}"""


@pytest.mark.parametrize(
    ("layout", "attributes", "platform"),
    [
        ("{1,0:T(8,128)}", "", "tpu"),
        ("{1,0:T(8,128)S(1)}", "", "tpu"),
        ("{1,0}", ', backend_config={"operation_queue_id":"0"}', "gpu"),
        ("{1,0}", ', backend_config={"outer_dimension_partitions":["2"]}', "cpu"),
        ("{1,0}", "", None),
    ],
)
def test_the_platform_of_a_text(layout: str, attributes: str, platform: str | None) -> None:
    (module,) = hlo.parser.parse(TEXT.format(layout=layout, attributes=attributes))
    assert platform_of(module) == platform


@pytest.mark.parametrize(
    ("target", "platform"),
    [
        ("__cudnn$fmhaSoftmax", "gpu"),
        ("__gpu$xla.gpu.triton", "gpu"),
        ("cusolver_syevd_ffi", "gpu"),
        ("custom", None),
        ("tpu_custom_call", None),  # also in a text that no compiler has changed
    ],
)
def test_the_platform_of_a_text_with_nothing_but_a_call(target: str, platform: str | None) -> None:
    call = TEXT.replace("negate(x){attributes}", f'custom-call(x), custom_call_target="{target}"')
    (module,) = hlo.parser.parse(call.format(layout="{1,0}"))
    assert platform_of(module) == platform
