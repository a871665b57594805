"""The feed-forward layer of a transformer: two matrices, or three if it is gated."""

import jax
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name

from inspector.model.built_in.layer import Layer


class MLP(Layer):
    """x (batch, seq, embed) → hidden (batch, seq, mlp) → hidden·down, as x.

    The hidden values are act(x·up), or act(x·gate) ∘ (x·up) if gated (Shazeer 2020, arXiv:2002.05202).
    """

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c = self.config
        activation = getattr(jax.nn, c.activation)
        by_column = ("batch", "seq", "mlp")
        up = self.weight("up", (c.embed, c.mlp), ("embed", "mlp"), fan_in=c.embed, contracted=(0,))
        down = self.weight("down", (c.mlp, c.embed), ("mlp", "embed"), fan_in=c.mlp, contracted=(0,))
        if c.gated:
            gate = self.weight("gate", (c.embed, c.mlp), ("embed", "mlp"), fan_in=c.embed, contracted=(0,))
            gates = checkpoint_name(self.product("bsm,mh->bsh", x, gate, by_column), "mlpwi_0")
            values = checkpoint_name(self.product("bsm,mh->bsh", x, up, by_column), "mlpwi_1")
            hidden = activation(gates) * values
        else:
            values = checkpoint_name(self.product("bsm,mh->bsh", x, up, by_column), "mlpwi")
            hidden = activation(values)
        hidden = self.constrained("hidden", hidden, by_column)
        output = self.product("bsh,hm->bsm", hidden, down, ("batch", "seq", "embed"))
        return checkpoint_name(output, "mlpwo")
