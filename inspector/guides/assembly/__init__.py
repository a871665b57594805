"""An array that the user assembles from pieces by hand: the request, the script and the result."""

from inspector.guides.assembly.request import (
    DEFAULTS,
    MISTAKES,
    NO_MISTAKE,
    WAYS,
    Assembly,
    Step,
    applicable,
    from_json,
    given_shape,
    parse,
    recipe,
    swap_partner,
)
from inspector.guides.assembly.result import Assembled, Contents, Piece, Stage
