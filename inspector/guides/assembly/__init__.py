"""An array that the user assembles from pieces by hand: the request, the script and the result."""

from inspector.guides.assembly.request import (
    DEFAULTS,
    MISTAKES,
    NO_MISTAKE,
    WAYS,
    Assembled,
    Assembly,
    Contents,
    Piece,
    Stage,
    Step,
    applicable,
    given_shape,
    parse,
    recipe,
    swap_partner,
)
