"""Every value that a table can hold, as strategies of Hypothesis."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

from hypothesis import strategies as st

from scripts.helpers.protocol.values import RESERVED_NAMES


@st.composite
def decimals(draw: st.DrawFn) -> Decimal:
    """Any Decimal that a table can hold and boto3 can read, up to 38 digits and both limits included."""
    digits = draw(st.integers(1, 10**38 - 1))
    width = len(str(digits))
    magnitude = draw(st.integers(max(-130, width - 166), 125))
    return Decimal((draw(st.integers(0, 1)), tuple(map(int, str(digits))), magnitude - width + 1))


floats = st.floats(1e-130, 9.9e125) | st.floats(-9.9e125, -1e-130) | st.sampled_from([0.0, 1e23, 5e-130])
integers = st.integers(-(10**38) + 1, 10**38 - 1) | st.builds(
    lambda digits, zeros: digits * 10**zeros, st.integers(-999, 999), st.integers(0, 120)
)
zones = st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=zones | st.just(timezone.utc))
leaves = (
    st.none() | st.booleans() | integers | floats | decimals() | st.text(max_size=40) | st.binary(max_size=40)
    | st.dates() | moments | st.sampled_from([0, "", False, Decimal(0), Decimal("0.00"), Decimal("0E+500")])
)  # fmt: skip
sets = (
    st.sets(st.text(max_size=12), min_size=1, max_size=4) | st.sets(st.binary(max_size=12), min_size=1, max_size=4)
    | st.sets(integers, min_size=1, max_size=4) | st.sets(floats, min_size=1, max_size=4)
    | st.sets(decimals(), min_size=1, max_size=4)
)  # fmt: skip
names = st.text(min_size=1, max_size=12)
nested_values = st.recursive(
    leaves | sets, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=16
)
maps = st.dictionaries(names.filter(lambda name: name not in RESERVED_NAMES), nested_values, max_size=6)
