"""The guide on accuracy: predicted step times against published measurements."""

import streamlit as st

from inspector.answers import accuracy as section_of_accuracy
from inspector.compare.measured import accuracy
from inspector.jobs import serving
from inspector.machines import hardware
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import chip_choice, view_link
from inspector.prediction import calibration
from inspector.text.errors import InvalidInput

_ALL = "All chips"


def show() -> None:
    """Draw the page, for the chip of its URL."""
    st.markdown("### Accuracy of predictions")
    try:
        own = () if serving.current().proxy else calibration.read()
    except InvalidInput as error:
        own = ()
        st.warning(plain(str(error)), icon=":material/warning:")
    published = accuracy.shipped()
    chip = _chosen(dict.fromkeys(row.chip for row in published.rows if row.chip in hardware.CHIPS))
    render.show(section_of_accuracy.section(published, own, chip).blocks)


def _chosen(names: dict[str, None]) -> hardware.Chip | None:
    """Draw the choice of a chip, at first that of the URL, and return it; None for all chips."""
    linked = None
    if (text := st.query_params.get(chip_choice.KEY)) is not None:
        try:
            linked = hardware.chip(text)
            names |= {linked.name: None}
        except InvalidInput as error:
            view_link.show_problems([str(error)])
    titles = {_ALL: None, **{hardware.CHIPS[name].title: hardware.CHIPS[name] for name in names}}
    key = f"accuracy_chip:{linked and linked.name}"  # another link chooses another chip

    def write() -> None:
        chip = titles[st.session_state[key]]
        st.query_params.from_dict({} if chip is None else {chip_choice.KEY: chip.name})

    title = st.pills(
        "Chip",
        list(titles),
        default=_ALL if linked is None else linked.title,
        key=key,
        required=True,
        label_visibility="collapsed",
        on_change=write,
    )
    return titles[title]
