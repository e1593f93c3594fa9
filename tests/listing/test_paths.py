"""Which keys Spark reads: its rule for hidden files, and keys that no Hadoop path can name."""

from __future__ import annotations

import pytest

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.paths import check_readable, folder_columns, is_hidden, suffix


@pytest.mark.parametrize(
    "key",
    [
        "_SUCCESS",
        "a/_SUCCESS",
        ".part-0.crc",
        "_temporary/0/part-0.csv",
        "a/_temporary/part-0.csv",
        "a/.hidden/b/part-0.csv",
        "../part-0.csv",
        "a/./part-0.csv",
        "part-0.csv._COPYING_",
        "a._COPYING_/part-0.csv",
        "a/",
        "",
        "a_$folder$",
        "a/b_$folder$",
        "_metadata",
        "_common_metadata",
        "_delta_log/0.json",
        "_a/year=2013/part-0.csv",
    ],
)
def test_key_is_hidden_when_spark_skips_it(key: str) -> None:
    assert is_hidden(key)


@pytest.mark.parametrize(
    "key",
    [
        "part-0.csv",
        "a/part-0.csv",
        "a_b/c.d/part-0",
        "_year=2013/part-0.csv",
        "a/_day=1",
        "_metadata/part-0.csv",
        "_common_metadata.old/part-0.csv",
        "a_COPYING_/b.csv",
        "$folder$/x",
        "a b%20+[*{\n\U0001f697.csv",
    ],
)
def test_key_is_not_hidden_when_spark_reads_it(key: str) -> None:
    assert not is_hidden(key)


@pytest.mark.parametrize("key", ["a.csv", "a b/%20/+/[x]/*/{a,b}/?\\.csv", "a\nb.csv", "\U0001f697/\ue000.csv", "a:b"])
def test_key_is_accepted_when_a_path_can_name_it(key: str) -> None:
    check_readable("s3://bucket/prefix/", key)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("a//b.csv", "empty component"),
        ("/b.csv", "empty component"),
        ("b.csv/", "empty component"),
        ("", "empty component"),
        ("\ud83d.csv", "not valid UTF-8"),
    ],
)
def test_key_is_refused_with_source_key_and_remedy_when_no_path_can_name_it(key: str, reason: str) -> None:
    with pytest.raises(SourceError) as caught:
        check_readable("s3://bucket/prefix/", key)

    assert f"Source 's3://bucket/prefix/': key {key!r} " in str(caught.value)
    assert reason in str(caught.value)
    assert "Rename the object" in str(caught.value)
    assert caught.value.source == "s3://bucket/prefix/"


@pytest.mark.parametrize(
    ("key", "expected"),
    [("a/b.csv", "csv"), ("a/b.CSV.Gz", "gz"), ("a.d/b", ""), ("b.", ""), ("b", ""), ("a b.json", "json")],
)
def test_suffix_is_that_of_the_file_name_when_folders_have_dots(key: str, expected: str) -> None:
    assert suffix(key) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a=1/x/b=2/f.csv", ("b",)),
        ("a=1/x/f.csv", ("a",)),
        ("year=2013/month=1/a.csv", ("year", "month")),
        ("flights/year=2013/a=b.csv", ("year",)),
        ("_day=a=b/x.csv", ("_day",)),
        ("a.csv", ()),
    ],
)
def test_folder_columns_are_those_of_the_folders_when_a_file_name_has_one(key: str, expected: tuple[str, ...]) -> None:
    assert folder_columns(key) == expected
