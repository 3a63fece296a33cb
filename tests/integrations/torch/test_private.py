"""The private names of torch that headspan uses: whether this version has them, and whether they do what is expected.

If a name has moved, change its function in `headspan.torch.private`; nothing else uses it.
"""

import ast
import inspect
import pkgutil
import sys

import pytest
from helpers import run_python
from tensors import torch, warnings_of_torch

from headspan.torch import private  # isort: skip

# Each private name: the function of headspan.torch.private that uses it, and what headspan needs it for.
NAMES = {
    "torch._C._are_functorch_transforms_active": ("is_transformed", "to see torch.func.vmap, grad and vjp"),
    "torch.autograd.forward_ad._current_level": ("is_in_forward_mode", "to refuse forward-mode derivatives"),
    "torch._C._len_torch_dispatch_stack": ("is_observed", "to show calls to dispatch modes"),
    "torch._C._len_torch_function_stack": ("is_observed", "to show calls to function modes"),
    "torch.autograd._profiler_enabled": ("is_observed", "to show calls to the profiler"),
    "torch.autograd.forward_ad._set_fwd_grad_enabled": ("enable_forward_mode", "for nested transforms of torch.func"),
    "torch._functorch.autograd_function.enable_single_level_autograd_function": (
        "enable_functions_of_one_level",
        "for gradients within torch.func",
    ),
    "torch._C._after_autograd_keyset": ("keys_below_autograd", "to call kernels below autograd"),
    "torch._C.DispatchKeySet": ("cpu_keys", "to call the kernel of the CPU at once"),
    "torch._C.DispatchKey": ("cpu_keys", "to call the kernel of the CPU at once"),
    "torch._C._AutoDispatchBelowAutograd": ("redispatch_below_autograd", "to call kernels below autograd"),
    "torch.Tensor._version": ("version_of", "to notice that a captured tensor changed"),
    "torch._dynamo": ("is_compiler_loaded", "to record the layers of a compiled model"),
    "torch._assert_async": ("assert_on_device", "to check masks of transformers in compiled models"),
    "torch.distributed.tensor.DTensor._op_dispatcher": ("register_shardings", "for attention on DTensor"),
    "torch.distributed.tensor._dtensor_spec.DTensorSpec": ("register_shardings", "for attention on DTensor"),
    "torch.distributed.tensor._op_schema.OpSpec": ("register_shardings", "for attention on DTensor"),
    "torch.distributed.tensor._op_schema.OpStrategy": ("register_shardings", "for attention on DTensor"),
    "torch.distributed.tensor._op_schema.RuntimeSchemaInfo": ("register_shardings", "for attention on DTensor"),
    "torch.distributed.tensor._ops.utils.generate_redistribute_costs": (
        "register_shardings",
        "for attention on DTensor",
    ),
    "torch.distributed.tensor._ops.utils.is_tensor_shardable": ("register_shardings", "for attention on DTensor"),
}
# Names that only instances have, and the one that is set on a function and read by the compiler.
OF_INSTANCES = {"_ragged_idx", "_qkv_same_embed_dim", "_dynamo_marked_constant"}


def resolve(name):
    """As `pkgutil.resolve_name`, but modules that a package does not import by itself are found after any part."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(pkgutil.resolve_name(module), attribute)
    except AttributeError:
        return pkgutil.resolve_name(name)


def missing(name, function, purpose):
    return f"torch {torch.__version__} has no {name}, which headspan.torch.private.{function} needs {purpose}"


@pytest.mark.parametrize("name", NAMES)
def test_torch_has_the_private_name(name):
    try:
        resolve(name)
    except (AttributeError, ImportError):
        pytest.fail(missing(name, *NAMES[name]), pytrace=False)


def test_every_private_name_of_the_module_is_tested():
    used = set()
    for node in ast.walk(ast.parse(inspect.getsource(private))):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            used |= {*node.module.split("."), *(name.name for name in node.names)}
    used = {name for name in used if name.startswith("_") and not name.endswith("__")}
    assert used <= {part for name in NAMES for part in name.split(".")} | OF_INSTANCES


def test_every_function_of_the_module_exists_and_is_named():
    assert all(callable(getattr(private, function)) for function, _ in NAMES.values())


def what_is_active():
    return private.is_transformed(), private.is_in_forward_mode(), private.is_observed()


def test_transforms_and_modes_and_the_profiler_are_seen():
    seen = []

    def look(x):
        seen.append(what_is_active())
        return x

    one = torch.zeros(1)
    torch.func.vmap(look)(one)
    with torch.autograd.forward_ad.dual_level():
        look(one)
    with torch.utils._python_dispatch.TorchDispatchMode():
        look(one)
    with torch.overrides.TorchFunctionMode():
        look(one)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), warnings_of_torch():
        look(one)
    with warnings_of_torch():
        torch.jit.trace(look, one, check_trace=False)
    assert seen == [(True, False, True), (False, True, True), *[(False, False, True)] * 4]
    assert what_is_active() == (False, False, False)


def test_forward_mode_can_be_enabled():
    with torch.autograd.forward_ad.dual_level(), warnings_of_torch():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))
        with torch.autograd.forward_ad._set_fwd_grad_enabled(False), private.enable_forward_mode():
            assert torch.autograd.forward_ad.unpack_dual(dual * 3).tangent.item() == 3


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def test_a_function_is_applied_and_operators_are_called_below_autograd():
    """As the kernels of attention do, plainly and within `torch.func`."""
    library = torch.library.Library("headspan_private", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    op = torch.ops.headspan_private.double.default
    keys_seen = []

    def differentiated(keys, x):
        below = private.keys_below_autograd(keys)
        keys_seen.append(below == private.cpu_keys())
        assert torch.equal(private.redispatch_below_autograd(op, below, x), 2 * x)
        if private.is_transformed():
            with private.enable_functions_of_one_level():
                return private.apply_at_one_level(Double, x)
        return private.apply_at_one_level(Double, x)

    library.impl(op, lambda x: 2 * x, "CPU")
    library.impl(op, differentiated, "Autograd", with_keyset=True)
    x = torch.ones(3, requires_grad=True)
    op(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert torch.func.grad(lambda x: op(x).sum())(torch.ones(3)).tolist() == [2, 2, 2]
    assert keys_seen[0] is True


def test_the_compiler_takes_a_marked_function_as_a_constant():
    @private.constant_when_compiled
    def length(text):
        return len(str(sys.modules.get(text)))  # cannot be compiled

    with warnings_of_torch():
        compiled = torch.compile(lambda x: x + length("sys"), fullgraph=True, backend="eager")
        assert compiled(torch.zeros(1)).item() == len(str(sys))


def test_whether_the_compiler_is_loaded():
    code = """
import torch
from headspan.torch import private
before = private.is_compiler_loaded()
torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))
print(before, private.is_compiler_loaded())
"""
    assert run_python(code).split() == ["False", "True"]


def test_a_condition_is_asserted():
    private.assert_on_device(torch.tensor(True), "not raised")
    with pytest.raises(RuntimeError, match="must be true"):
        private.assert_on_device(torch.tensor(False), "must be true")


def test_the_ragged_axis_of_a_nested_tensor():
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
    try:
        assert [private.ragged_axis(x) for x in (nested, nested[..., None].transpose(1, 2))] == [1, 2]
    except AttributeError:
        pytest.fail(
            missing("NestedTensor._ragged_idx", "ragged_axis", "for attention on nested tensors"), pytrace=False
        )


@torch.no_grad()
def test_the_fast_path_of_an_encoder_layer_is_disabled():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    if not hasattr(layer.self_attn, "_qkv_same_embed_dim"):
        pytest.fail(
            missing("MultiheadAttention._qkv_same_embed_dim", "disable_fast_path", "for convert"), pytrace=False
        )
    calls = []
    layer.self_attn.forward = lambda query, *_, **__: (calls.append("forward"), (query, None))[1]
    layer(torch.zeros(1, 3, 8))
    assert calls == []
    private.disable_fast_path(layer.self_attn)
    layer(torch.zeros(1, 3, 8))
    assert calls == ["forward"]


def test_a_sharding_is_registered(tmp_path):
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Replicate, Shard

    library = torch.library.Library("headspan_private", "FRAGMENT")
    library.define("scaled(Tensor x, Tensor? by=None, *, float factor=1) -> Tensor[]")
    op = torch.ops.headspan_private.scaled.default
    library.impl(op, lambda x, by=None, *, factor=1.0: [x * factor], "CompositeExplicitAutograd")
    asked = []

    def shardings(mesh, shapes, options):
        asked.append((mesh.ndim, {name: tuple(shape) for name, shape in shapes.items()}, options["factor"]))
        for placement in (Replicate(), Shard(0)):
            yield {"x": [placement]}, [[placement]]

    private.register_shardings(op, ("x", "by"), ("factor",), shardings)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
        x = DTensor.from_local(torch.ones(4, 2), mesh, [Shard(0)])
        (out,) = op(x, factor=3.0)
        assert out.placements == (Shard(0),)
        assert out.to_local().tolist() == [[3, 3]] * 4
    finally:
        dist.destroy_process_group()
    assert asked == [(1, {"x": (4, 2)}, 3.0)]
