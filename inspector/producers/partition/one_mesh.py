"""Write all shardings of a module over the axes of its first mesh, as XLA does before propagation.

An axis of another mesh is a part of an axis of the first one, such as `"model":(1)2`, or several axes.
"""

import re
from collections.abc import Iterator, Mapping

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.compiled.hlo import shardings
from inspector.compiled.hlo.shardings import NamedMesh, Part
from inspector.core.errors import InvalidInput
from inspector.producers.mlir.walk import symbols, text_of

_SHARDING = re.compile(r"<@([\w.$-]+), \[((?:[^\[\]{}]|\{[^{}]*\})*)\]((?:, \w+=\{[^{}]*\})*)>")
_ENTRY = re.compile(r"\{([^{}]*)\}(p\d+)?")
_EXTRA = re.compile(r", (\w+)=\{([^{}]*)\}")
_MESH = r'^\s*sdy\.mesh @"?{}"? = .*$\n'

OTHER_MESHES = "other-mesh"


def meshes_of(module: ir.Operation) -> dict[str, NamedMesh]:
    """Return the meshes of a module's operation by name."""
    meshes = {}
    for name, operation in symbols(module, "sdy.mesh").items():
        mesh = shardings.sdy_mesh(str(sdy.MeshAttr(operation.attributes["mesh"])))
        if mesh is not None:
            meshes[name] = mesh
    return meshes


def on_first_mesh(module: ir.Module, meshes: Mapping[str, NamedMesh]) -> ir.Module:
    """Return the module with one mesh.

    Raises:
      InvalidInput: a mesh has other devices than the first one, or manual axes.
    """
    if len(meshes) < 2:
        return module
    first, main = next(item for item in meshes.items() if item[1].axes)
    text = text_of(module)
    for name, mesh in meshes.items():
        if name == first:
            continue
        text = re.sub(_MESH.format(re.escape(name)), "", text, flags=re.M)
        if mesh == main:  # JAX 0.12 writes another one for the groups of collectives in a shard_map
            text = re.sub(rf"@{re.escape(name)}(?![\w.$-])", f"@{first}", text)

    def replaced(match: re.Match[str]) -> str:
        mesh = meshes.get(match[1])
        if mesh is None or match[1] == first:
            return match[0]
        if not mesh.axes:
            return f"<@{first}, [{match[2]}]>"
        if mesh.order is not None or main.order is not None or mesh.size != main.size:
            raise InvalidInput("it has meshes with different devices")
        sharding = shardings.parse_sdy(f"#sdy.sharding<@m, [{match[2]}]{match[3]}>", {"m": mesh})
        entries = [
            "{"
            + ", ".join([*axes_of_parts(parts, main), *(["?"] if "?" in entry[1] else [])])
            + "}"
            + (entry[2] or "")
            for parts, entry in zip(sharding.dimensions, _ENTRY.finditer(match[2]), strict=True)
        ]
        more = "".join(
            f", {kind}={{{', '.join(axes_of_parts(sharding.unreduced, main))}}}"
            for kind, _ in _EXTRA.findall(match[3])
            if kind == "unreduced"
        )
        return f"<@{first}, [{', '.join(entries)}]{more}>"

    try:
        return ir.Module.parse(_SHARDING.sub(replaced, text))
    except ir.MLIRError:
        raise InvalidInput("it has manual axes on several meshes") from None


def axes_of_parts(parts: tuple[Part, ...], mesh: NamedMesh) -> Iterator[str]:
    """Yield the axes of the mesh, or parts of them, that a dimension's parts are. Major first."""
    strides = mesh.strides
    for part in parts:
        size, top = part.size, part.size * part.stride
        for name, length in mesh.axes:  # major first
            start, end = strides[name], strides[name] * length
            low, high = max(part.stride, start), min(top, end)
            if low >= high:
                continue
            if high % low or end % high or low % start:
                raise InvalidInput("it has meshes whose axes do not fit together")
            taken, before = high // low, end // high
            size //= taken
            yield f'"{name}"' if taken == length else f'"{name}":({before}){taken}'
        if size != 1:
            raise InvalidInput("it has meshes whose axes do not fit together")
