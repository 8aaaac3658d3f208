"""JAX: values and gradients inside shard_map, and global arrays, of four host devices in one process."""
import os
import pathlib
import tempfile
import unittest

os.environ.update(XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

import reader
from orrery_dump import DumpError
from orrery_dump.tap import Taps


class Tap(unittest.TestCase):
    def test_values_gradients_and_arrays(self):
        mesh = jax.make_mesh((2, 2), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        x, w = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.arange(32, dtype=np.float32).reshape(8, 4)
        with tempfile.TemporaryDirectory() as folder:
            taps = Taps(mesh, folder, widths={"ln_1": 4, "up": 12}, batch=(2, 3), dtype="fp32")
            weight = jax.device_put(w, NamedSharding(mesh, P("tp", None)))
            taps.array("start/up.weight", weight, of=(12, 4), start=4, piece="second")
            taps.array("start/up.weight", jax.device_put(w[:4] + 100, NamedSharding(mesh, P())), of=(12, 4), piece="first")

            def loss(w, x):
                up = taps(taps(x, "ln_1") @ w.T, "up", parts=(8,), start=4, piece="second")
                return jax.lax.psum((up ** 2).sum(), ("dp", "tp")) / 2

            sharded = jax.shard_map(loss, mesh=mesh, in_specs=(P("tp", None), P("dp")), out_specs=P())
            jax.jit(jax.grad(sharded, (0, 1)))(weight, x)
            taps.stop()
            jax.jit(sharded)(weight, x + 1)                         # not kept
            taps.number("loss", 1)
            self.assertEqual(len(taps.save()), 4)
            joined = reader.join(folder, holes=("act/up", "grad/up"))
        up = x.reshape(6, 4) @ w.T
        for name, expected in (("act/ln_1", x.reshape(6, 4)), ("grad/ln_1", up @ w),
                               ("start/up.weight", np.vstack([w[:4] + 100, w]))):
            self.assertTrue(np.array_equal(joined[name], expected), name)
        for kind in ("act", "grad"):                                # the first four columns are nobody's
            self.assertTrue(np.array_equal(joined[kind + "/up"][:, 4:], up), kind)

    def test_refusals(self):
        mesh = jax.make_mesh((2,), ("tp",), axis_types=(jax.sharding.AxisType.Auto,))
        taps = Taps(mesh, pathlib.Path("none"), widths={"x": 4}, batch=(1, 3))
        with self.assertRaisesRegex(DumpError, r"act/x: \[1, 3, 3\], but this device has 1 sequences and 2 columns"):
            taps._keep("act/", "x", (4,), 0, "", 1.0, (), np.zeros((1, 3, 3)), 0)


if __name__ == "__main__":
    unittest.main()
