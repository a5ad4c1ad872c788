"""What built-in plugins say to the layers of this distribution."""

import pytest

import arrayferry as af
from arrayferry.extending import Part


@pytest.mark.parametrize("first", ["import {}", "af.backends(); import {}", "{}"])
def test_importing_a_layer_loads_no_plugin(run_python, first):
    """Nor do its parts load a library, whether the layer is imported before the plugins, after them, or by its hook."""
    for layer, hook in (("functions", "gradients"), ("streams", "blocks")):
        script = f"""
import sys, arrayferry as af
{first.format(f"arrayferry_{layer}" if "import" in first else "")}
print(any(name.startswith("arrayferry_plugins") for name in sys.modules))
print(len(af.registry.parts("arrayferry_{hook}")) > 1, *({{"torch", "jax", "dask"}} & set(sys.modules)))
"""
        assert run_python(script).split() == [str("backends" in first), "True"]


def test_parts_of_built_in_plugins_name_what_there_is():
    owners = [*af.backends().values(), *af.registry.sources(), *af.registry.catalog.containers]
    for hook in ("arrayferry_gradients", "arrayferry_blocks"):
        parts = af.registry.parts(hook)
        assert {id(part) for part in parts.values()} <= {id(parts.of(owner)) for owner in owners}
        assert all(isinstance(part, Part) for part in parts.values())
