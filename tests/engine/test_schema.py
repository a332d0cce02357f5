from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from engine import events, schema
from engine.codec import DTYPES, encode
from engine.events import KINDS, SCHEMA_VERSION, TENSOR_KINDS
from tests.engine.test_codec import attention, token_fields


def test_the_generated_files_are_in_step_with_the_schema() -> None:
    assert schema.main(["--check"]) == 0


def test_check_fails_and_writes_nothing_when_a_file_is_out_of_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "schema.js"
    script.write_text("export const SCHEMA_VERSION = 0;\n")
    monkeypatch.setattr(schema, "ROOT", tmp_path)
    monkeypatch.setattr(schema, "OUTPUTS", {script: lambda current: schema.javascript()})
    assert schema.main(["--check"]) == 1
    assert "schema.js is out of step" in capsys.readouterr().err
    assert script.read_text() == "export const SCHEMA_VERSION = 0;\n"
    assert schema.main([]) == 0
    assert script.read_text() == schema.javascript()
    assert schema.main(["--check"]) == 0


def test_javascript_has_every_kind_field_and_word() -> None:
    text = schema.javascript()
    assert f"SCHEMA_VERSION = {SCHEMA_VERSION};" in text
    for kind, cls in KINDS.items():
        assert f'@property {{"{kind}"}} kind' in text
        assert f"@typedef {{object}} {cls.__name__}\n" in text
        block = text[text.index(f"@typedef {{object}} {cls.__name__}\n") :].split("*/")[0]
        names = {field.name for field in dataclasses.fields(cls)} - {"data"}
        assert names <= set(re.findall(r"@property \{.*\} (\w+)", block)), kind
    for words in (events.FinishReason, events.Role, events.Phase, events.AbsentReason):
        for word in get_args(words):
            assert f'"{word}",' in text


def test_a_tensors_schema_is_that_of_its_header() -> None:
    for kind in TENSOR_KINDS:
        properties = schema.json_schema(kind)["properties"]
        assert "data" not in properties
        assert properties["dtype"]["enum"] == list(DTYPES)
        assert properties["shape"]["type"] == "array"


@pytest.mark.parametrize("kind", KINDS)
def test_json_schemas_name_every_field_with_its_meaning(kind: str) -> None:
    described = schema.json_schema(kind)
    assert described["type"] == "object"
    assert described["properties"]["kind"]["enum"] == [kind]
    assert set(described["required"]) == set(described["properties"])
    for name, field in described["properties"].items():
        assert field["description"], name
        assert {"type", "anyOf", "enum"} & set(field), f"{kind}.{name} has no type"


def test_what_is_encoded_has_exactly_the_fields_of_its_json_schema() -> None:
    import numpy as np
    import orjson

    token = orjson.loads(encode(events.Token(**token_fields())).payload)
    assert list(token) == ["kind", *[name for name in token if name != "kind"]]
    assert set(token) == set(schema.json_schema("token")["properties"])
    payload = encode(attention(np.ones((1, 1, 1), np.float32))).payload
    header = orjson.loads(payload[4 : 4 + int.from_bytes(payload[:4], "little")])
    assert set(header) == set(schema.json_schema("attention")["properties"])


def test_units_come_from_names() -> None:
    units = {field.name: field.unit for field in schema.fields("token")}
    assert units["t_ns"] == "ns"
    assert units["held_back_bytes"] == "bytes"
    assert units["entropy_bits"] == "bits"
    assert units["logprob"] == "nats"
    assert units["text_length"] is None


def test_the_format_page_describes_every_field_and_keeps_its_prose() -> None:
    page = schema.format_page("Prose.\n" + schema._BEGIN + "outdated" + schema._END + "\nMore prose.\n")
    assert page.startswith("Prose.\n")
    assert page.endswith("\nMore prose.\n")
    assert "outdated" not in page
    for kind in KINDS:
        section = page.split(f"### `{kind}`")[1].split("### ")[0]
        for field in schema.fields(kind):
            if field.name not in ("kind", "seq", "t_ns"):
                assert f"| `{field.name}` |" in section


def test_a_format_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        schema.format_page("only prose")
