"""YAML as configs use it: numbers, booleans, duplicates, and tokens of the command line."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnasium_solver.config.yaml_file import (
    dump_yaml,
    parse_fields,
    parse_value,
    parse_yaml,
    read_file,
    unfilled,
)
from gymnasium_solver.errors import ConfigError

SCALARS: dict[str, Any] = {
    "1e-3": 0.001,
    "1e5": 100_000.0,
    "1E6": 1_000_000.0,
    "-2.5e+3": -2500.0,
    "1.": 1.0,
    ".5": 0.5,
    "-.5": -0.5,
    "1.5": 1.5,
    "100_000": 100_000,
    "8": 8,
    "-8": -8,
    "010": 10,
    "0x10": 16,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    "off": "off",
    "yes": "yes",
    "lin_0.001": "lin_0.001",
    "mc:rtg": "mc:rtg",
    "1:30": "1:30",
    "2024-01-01": "2024-01-01",
    "1e": "1e",
    "e5": "e5",
    "1.2.3": "1.2.3",
    "[64, 64]": [64, 64],
    "[]": [],
    "{start: 1e-3, end: 0}": {"start": 0.001, "end": 0},
    "'8'": "8",
    '"true"': "true",
}


@pytest.mark.parametrize("text", SCALARS)
def test_a_token_means_what_the_yaml_line_means(text: str) -> None:
    expected = SCALARS[text]
    for value in (parse_yaml(f"key: {text}\n", "test")["key"], parse_value(text)):
        assert value == expected
        assert type(value) is type(expected)


def test_an_empty_value_is_null() -> None:
    assert parse_yaml("a:\nb: {c: }\n", "test") == {"a": None, "b": {"c": None}}


def test_tokens_that_yaml_would_want_quoted() -> None:
    for text in ("@last/@best", "a: b", "*x", "a #b", "%x", "- a", "!x", "&a"):
        assert parse_value(text) == text
    assert parse_value("") == ""
    assert parse_value(" 3 ") == 3


def test_a_broken_flow_token_is_told() -> None:
    with pytest.raises(ConfigError, match=r"the value \[1, 2"):
        parse_value("[1, 2")
    with pytest.raises(ConfigError, match="'a' is given twice"):
        parse_value("{a: 1, a: 2}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", r"^file\.yaml:3: the key 'a' is given twice, first in line 1$"),
        ("ppo:\n  n: 1\n  n: 2\n", r"^file\.yaml:3: the key 'n' is given twice, first in line 2$"),
        ("x: {a: 1, a: 2}\n", r"^file\.yaml:1: the key 'a' is given twice"),
        ("x: [{b: 1, b: 2}]\n", r"^file\.yaml:1: the key 'b'"),
        ("_base: &b\n  a: 1\n  a: 2\nppo:\n  <<: *b\n", r"^file\.yaml:3: the key 'a'"),
        ("a: [1\nb: 2\n", r"^file\.yaml:\d: "),
        ("a: *nowhere\n", r"^file\.yaml:1: found undefined alias"),
        ("a: 1\n b: 2\n", r"^file\.yaml:2: "),
        ("a: !!python/object:os.system x\n", r"^file\.yaml:1: could not determine a constructor"),
    ],
)
def test_errors_name_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, "file.yaml")


def test_merge_keys_may_be_overridden_and_chained() -> None:
    text = """
    _base: &base {a: 1, b: 1}
    mid: &mid {<<: *base, b: 2}
    top: {<<: *mid, c: 3, a: 4}
    again: {<<: [*mid, *base], d: 5}
    """
    content = parse_yaml(text, "test")
    assert content["mid"] == {"a": 1, "b": 2}
    assert content["top"] == {"a": 4, "b": 2, "c": 3}
    assert content["again"] == {"a": 1, "b": 2, "d": 5}


@pytest.mark.parametrize(
    "text", ["1e5", "off", "yes", "null", "8", "0.1", "2024-01-01", "", "a: b", "x\ny", "→", "<<"]
)
def test_text_survives_dumping_for_us_and_for_standard_loaders(text: str) -> None:
    data = {"text": text, "nested": [text, {"inner": text}]}
    dumped = dump_yaml(data)
    assert parse_yaml(dumped, "test") == data
    assert yaml.safe_load(dumped) == data


def test_numbers_survive_dumping() -> None:
    data: dict[str, Any] = {
        "a": 1e-5,
        "b": 1e20,
        "c": 3,
        "d": 0.1 + 0.2,
        "e": None,
        "f": True,
        "g": [],
        "h": {},
    }
    dumped = dump_yaml(data)
    assert parse_yaml(dumped, "test") == data
    assert list(parse_yaml(dumped, "test")) == list(data)


def test_placeholders_are_filled_as_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: ${lr}  # not ${this}\nb: {start: ${lr}, end: 0}\nc: x-${name}-y\n")
    content, names = read_file(path, {"lr": "1e-3", "name": "n"})
    assert content == {"a": 0.001, "b": {"start": 0.001, "end": 0}, "c": "x-n-y"}
    assert names == {"lr", "name", "this"}
    content, _ = read_file(path, {"name": "n"})
    assert set(unfilled(content)) == {"lr"}
    assert list(unfilled({"a": [1, "${x}"]})) == []


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file"):
        read_file(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_file(tmp_path / "binary.yaml")


def test_json_with_tabs(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(
        '{\n\t"a": 1e-3,\n\t"b": {\n\t\t"c": [1, null, true]\n\t}\n}\n'
    )
    assert read_file(tmp_path / "x.json")[0] == {"a": 0.001, "b": {"c": [1, None, True]}}


FILES = (
    "a: 1\nb: [1, 2,\n  3]\nc:\n- x\n- y: {z: 1e-3}\n# a comment\nd: 'it''s # text'\n",
    "a: 1\na: 2\n",
    "a: 1\nb: &x [1]\nc: *x\n",
    "base: {a: 1}\nx:\n  <<: {b: 2}\n",
    "a: 1\n---\nb: 2\n",
    "a: [1,\nb, 2]\n",
    'a: "one\nb: two"\n',
    "a: |\n  text\n  b: 1\nb: 1:30\n",
    "a: 1\n'quoted key': 2\n3: 4\nb: 5\n",
    "a: 1\nb\n",
    "a: 1\nb: !!python/name:os.system\n",
    "- a\n- b\n",
    "a: " + "[" * 60 + "]" * 60 + "\n",
    "text",
    "",
)


@pytest.mark.parametrize("text", FILES)
def test_fields_parsed_one_by_one_are_those_of_the_whole_file(text: str) -> None:
    def told(parse: Any) -> Any:
        try:
            return repr(parse(text, "file"))
        except ConfigError as error:
            return str(error)

    assert told(parse_fields) == told(parse_yaml)
    assert told(parse_fields) == told(parse_yaml)  # from what was kept


def test_what_is_kept_of_a_field_cannot_be_changed() -> None:
    parse_fields("a: [1, 2]\n", "one")["a"].append(3)
    assert parse_fields("a: [1, 2]\n", "two") == {"a": [1, 2]}
