"""An exact order for rows of any nesting, so that equal means equal and sorted means sorted everywhere."""

from __future__ import annotations

from collections.abc import Callable

from scripts.helpers._lazy import Column, F, T
from scripts.helpers.errors import FieldTypeError

WITHOUT_ORDER = ("interval", "variant", "geometry", "geography")


def inner_types(kind: T.DataType) -> list[tuple[str, T.DataType]]:
    """Return the types right within a type, by what leads to them."""
    if isinstance(kind, T.StructType):
        return [(part.name, part.dataType) for part in kind.fields]
    if isinstance(kind, T.ArrayType):
        return [("val", kind.elementType)]
    if isinstance(kind, T.MapType):
        return [("key", kind.keyType), ("val", kind.valueType)]
    return []


def check_order(name: str, kind: T.DataType) -> None:
    """Raise FieldTypeError for a type that has no order, wherever in a field it is."""
    if kind.typeName() in WITHOUT_ORDER:
        raise FieldTypeError(name, kind.typeName())
    for inner, within in inner_types(kind):
        check_order(f"{name}.{inner}", within)


def with_sorted_maps(value: Column, kind: T.DataType) -> Column:
    """Write a value with each of its maps as an array of `key` and `val`, in the order of the keys."""
    return _rebuilt(value, kind, lambda inner: inner.typeName() == "map", lambda plain, _: plain)


def is_loose(kind: T.DataType) -> bool:
    """Tell whether Spark takes unlike values of a type for equal: 0.0 and -0.0, or texts under a collation."""
    return _is_float(kind) or _is_collated(kind) or any(is_loose(inner) for _, inner in inner_types(kind))


def exactly(value: Column, kind: T.DataType) -> Column:
    """Write a value so that those which Spark takes for equal differ where they are not the same."""

    def unlike(plain: Column, of: T.DataType) -> Column:
        if _is_float(of):
            # Spark takes 0.0 and -0.0 for one number, but writes them as two texts. NULL for all other
            # numbers, which the row itself tells apart.
            return F.when(plain == 0, plain.cast("string"))
        # The only other one that is loose: a text under a collation.
        return plain.cast("binary")

    return _rebuilt(value, kind, is_loose, unlike)


def _is_float(kind: T.DataType) -> bool:
    return kind.typeName() in ("float", "double")


def _is_collated(kind: T.DataType) -> bool:
    return getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


def _rebuilt(
    value: Column, kind: T.DataType, wanted: Callable[[T.DataType], bool], leaf: Callable[[Column, T.DataType], Column]
) -> Column:
    """Write a value anew where something wanted is in it: maps as sorted arrays, and `leaf` of what holds nothing."""

    def again(inner: Column, of: T.DataType) -> Column:
        return _rebuilt(inner, of, wanted, leaf)

    if not _holds(kind, wanted):
        return value
    if isinstance(kind, T.StructType):
        parts = [again(value.getField(part.name), part.dataType).alias(part.name) for part in kind.fields]
        # Without the condition a struct that is NULL would become one whose fields are NULL: another row.
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.ArrayType):
        of_element = kind.elementType
        return F.transform(value, lambda element: again(element, of_element))
    if isinstance(kind, T.MapType):
        of_key, of_value = kind.keyType, kind.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                again(entry.getField("key"), of_key).alias("key"),
                again(entry.getField("value"), of_value).alias("val"),
            ),
        )
        # The entries of a map have no order of their own, and Spark neither sorts nor hashes maps.
        return F.sort_array(entries)
    return leaf(value, kind)


def _holds(kind: T.DataType, wanted: Callable[[T.DataType], bool]) -> bool:
    return wanted(kind) or any(_holds(inner, wanted) for _, inner in inner_types(kind))
