"""tensordict: containers of tensors. A container becomes a dict if its tensors become arrays of another library."""

from __future__ import annotations

from typing import Any

from arrayferry import Container, ConversionError, convert, flatten, hookimpl
from arrayferry.typing import AnyTree


class TensorDicts(Container):
    """Tensordicts of all classes, including lazy stacks."""

    types: tuple[Any, ...] = ("tensordict.TensorDictBase",)
    transparent: bool = True

    def children(self, value: AnyTree) -> list[Any]:
        return list(value.tensordicts if _is_lazy(value) else value.values())

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        import tensordict as td

        if not all(map(_fits_tensordict, children)):
            if _is_lazy(value):
                return _dense(value, children)
            plain_children = [c.to_dict() if td.is_tensor_collection(c) else c for c in children]
            return dict(zip(value.keys(), plain_children, strict=True))
        if _is_lazy(value):
            options = {"stack_dim": value.stack_dim, "stack_dim_name": value.names[value.stack_dim]}
            return type(value)(*children, **options) if children else value
        new_devices, rest = {child.device for child in children} - {value.device}, iter(children)
        kwargs = {"device": new_devices.pop() if value.device and new_devices else value.device}
        if any(value.names):
            kwargs["names"] = value.names
        if children:  # a block of a stream has a shorter batch than `value`
            kwargs["batch_size"] = children[0].shape[: value.batch_dims]
        built = value.apply(lambda _: next(rest), call_on_nested=True, filter_empty=False, **kwargs)
        if isinstance(value, td.TensorDictParams):
            built = td.TensorDictParams(built, no_convert="skip")
        return built.lock_() if value.is_locked else built

    def steps(self, value: AnyTree) -> list[str]:
        if _is_lazy(value):
            return [f".tensordicts[{index}]" for index in range(len(value.tensordicts))]
        return [f"[{key!r}]" for key in value.keys()]  # noqa: SIM118, value iterates over the batch

    def static(self, value: AnyTree) -> Any:
        structure = [value.stack_dim] if _is_lazy(value) else list(value.keys())
        return structure, value.batch_size, str(value.device), value.names, value.is_locked


class TensorClasses(Container):
    """Tensorclasses. They are rebuilt without their constructors. The only child of a `NonTensorData` is its value."""

    types: tuple[Any, ...] = ("tensordict.TensorClass",)
    transparent: bool = True

    def takes(self, cls: type) -> bool:
        return any("_is_tensorclass" in vars(base) for base in cls.__mro__)

    def children(self, value: AnyTree) -> list[Any]:
        import tensordict as td

        tensor_dict = value._tensordict
        return [value.data] if td.is_non_tensor(value) else TENSOR_DICTS.children(tensor_dict)

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        import tensordict as td

        data_field = {"data": children[0]} if td.is_non_tensor(value) else {}
        rebuilt_tensors = TENSOR_DICTS.rebuild(value._tensordict, [] if data_field else children)
        other_fields = value._non_tensordict | data_field
        if isinstance(rebuilt_tensors, dict):
            all_fields = rebuilt_tensors | other_fields
            field_names = () if data_field else value.__dataclass_fields__
            # add fields that are None, which TensorDict 0.15 does not store
            return all_fields | {name: None for name in field_names if name not in all_fields}
        built = object.__new__(type(value))
        vars(built).update(vars(value), _tensordict=rebuilt_tensors, _non_tensordict=other_fields)
        return built

    def steps(self, value: AnyTree) -> list[str]:
        import tensordict as td

        inner_steps = [] if td.is_non_tensor(value) else TENSOR_DICTS.steps(value._tensordict)
        return [f".{step[2:-2]}" if step[0] == "[" else step for step in inner_steps] or [""]

    def static(self, value: AnyTree) -> Any:
        import tensordict as td

        if td.is_non_tensor(value):
            return value.batch_size, str(value.device)
        return TENSOR_DICTS.static(value._tensordict), value._non_tensordict


TENSOR_DICTS = TensorDicts()


def _is_lazy(value: AnyTree) -> bool:
    import tensordict as td

    return isinstance(value, td.LazyStackedTensorDict)


def _fits_tensordict(child: Any) -> bool:
    import tensordict as td
    from torch import Tensor

    return isinstance(child, Tensor) or bool(td.is_tensor_collection(child))


def _dense(value: AnyTree, children: list[Any]) -> Any:
    """Return a lazy stack as a dict of arrays of the library to which its children were converted."""
    dense_dict = _as_dict(value)
    like_array = next(array for array in flatten(children)[0] if not _fits_tensordict(array))
    # allow narrowing here: the conversion of the children has checked it with the user's options
    return convert(dense_dict, like=like_array, narrowing="allow", unsupported="keep")


def _as_dict(value: AnyTree) -> Any:
    """Return a dict of the stacked tensors of a lazy stack."""
    try:
        return value.to_dict()
    except RuntimeError as error:
        raise ConversionError(
            "a lazy stack of tensordicts that differ in keys or shapes cannot become arrays",
            remedy="Convert the list of its tensordicts: list(x.tensordicts).",
        ) from error


def _streamed(value: AnyTree) -> Any:
    """Return a lazy stack as a tensordict of stacked tensors, since the tensors in the stack lack the stacked axis."""
    import tensordict as td

    if not _is_lazy(value):
        return value
    names = value.names if any(value.names) else None
    return td.TensorDict(_as_dict(value), value.batch_size, names=names)


def arrayferry_containers() -> list[Container]:
    """Return the containers of this module."""
    return [TENSOR_DICTS, TensorClasses()]


@hookimpl(optionalhook=True)
def arrayferry_blocks() -> list[Any]:
    """Return the `Streaming` of lazy stacks."""
    from ._streaming import ContainerStreaming

    return [ContainerStreaming(TensorDicts, _streamed)]
