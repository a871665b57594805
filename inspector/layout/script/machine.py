"""The machine and the mesh that a script makes: emulated devices, or the real ones of a target."""

from __future__ import annotations

from inspector.core.formatting import counted
from inspector.layout import Layout

_EMULATED = """\
# {count}. Leave these two lines out where there are real ones.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "{devices}"
"""

_REAL = "# Made for {target}: the real devices of that machine, {count}.\n"

_PROCESSES = """\
# The layout has {processes} processes with {share} each. Started as one process, as here, the shardings are
# the same. In each of several: `jax.distributed.initialize` first, its share of devices above, and
# `jax.make_array_from_process_local_data` for the batch.
"""

_ON_TORUS = """\
# Mesh axes along axes of the torus, which must be those of the machine.
devices = mesh_utils.create_device_mesh(
    mesh_shape, jax.devices()[:{devices}], allow_split_physical_axes=True
)
"""

_ROW_BY_ROW = "devices = np.array(jax.devices()[:{devices}]).reshape(mesh_shape)\n"


def machine(layout: Layout) -> str:
    """What must be set before JAX starts, and what a reader has to know of the machine."""
    count = counted(layout.devices, "device")
    target = layout.machine
    if target is not None:
        return _REAL.format(target=target.text, count=count)
    emulated = counted(layout.devices, "emulated device")
    text = _EMULATED.format(count=emulated, devices=layout.devices)
    if layout.processes > 1:
        share = counted(layout.devices // layout.processes, "device")
        text += _PROCESSES.format(processes=layout.processes, share=share)
    return text


def mesh(layout: Layout) -> str:
    """The devices in the order of the layout, and the mesh of them."""
    on_torus = layout.machine is not None and layout.device_order == "torus"
    text = _ON_TORUS if on_torus else _ROW_BY_ROW
    return text.format(devices=layout.devices) + "mesh = Mesh(devices, axis_names)\n\n"
