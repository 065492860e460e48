"""The fields of requests: their types, ranges and defaults, for validation, for openapi.json and for the docs.

A schema is JSON Schema, of which this uses a part: type, enum, minimum, exclusiveMinimum, maximum, minLength,
maxLength, items, minItems, maxItems and default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from vcdeploy.errors import BadValue

Schema = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class BadField(BadValue):
    """A field of a request has a value that can't be used."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in the body of a request."""

    def no_number(text: str) -> None:
        raise BadField(None, f"the body has {text}, which is no number in JSON")

    try:
        content = json.loads(body.decode(), parse_constant=no_number)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadField(None, f"the body is no JSON: {error}" if body else "the body is empty: send JSON") from error
    if not isinstance(content, dict):
        raise BadField(None, f"the body must be a JSON object, not {_named(content)}")
    return content


def checked(content: Mapping[str, Any], fields: Mapping[str, Schema]) -> dict[str, Any]:
    """All fields, those that are missing or null by their default."""
    for name in content:
        if name not in fields:
            near = get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(fields)}"
            raise BadField(str(name)[:80], f"there is no field {str(name)[:80]!r}; {hint}")
    values = {}
    for name, schema in fields.items():
        value = content.get(name)
        if value is None:
            if "default" not in schema and "null" not in _names(schema):
                raise BadField(name, f"{name} is missing")
            value = schema.get("default")
        else:
            check(value, schema, name)
        values[name] = value
    return values


def check(value: Any, schema: Schema, name: str) -> None:
    """Raise unless the value has the type and is in the range."""
    if "anyOf" in schema:
        for each in schema["anyOf"]:
            if _is(value, each.get("type", "object")):
                return check(value, each, name)
        raise BadField(name, f"{name} must be {_allowed(schema)}, not {_named(value)}")
    names = _names(schema)
    if not any(_is(value, each) for each in names):
        raise BadField(name, f"{name} must be {_allowed(schema)}, not {_named(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise BadField(name, f"{name} must be one of {', '.join(map(str, schema['enum']))}, not {value!r:.80}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, above = schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf)
        high = schema.get("maximum", math.inf)
        if not (low <= value <= high and value > above):
            begin = f"above {above:g} and at most" if above > low else f"from {low:g} to"
            raise BadField(name, f"{name} must be {begin} {high:g}, not {value!s:.40}")
    if isinstance(value, (str, list)):
        unit, keyword = ("characters", "Length") if isinstance(value, str) else ("items", "Items")
        least, most = schema.get(f"min{keyword}", 0), schema.get(f"max{keyword}", math.inf)
        if not least <= len(value) <= most:
            raise BadField(name, f"{name} must have from {least} to {most} {unit}, not {len(value)}")
    if isinstance(value, list) and "items" in schema:
        for n, each in enumerate(value):
            check(each, schema["items"], f"{name}[{n}]")
    return None


def _names(schema: Schema) -> list[str]:
    names = schema.get("type", [])
    return [names] if isinstance(names, str) else names


def _is(value: Any, name: str) -> bool:
    if name == "integer" and isinstance(value, float):  # 3.0 is an integer in JSON Schema
        return False
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _allowed(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_allowed(each) for each in schema["anyOf"])
    articles = {"integer": "an integer", "array": "an array", "object": "an object", "null": "null"}
    return " or ".join(articles.get(each, f"a {each}") for each in _names(schema))


def _named(value: Any) -> str:
    return next(name for name, types in _TYPES.items() if isinstance(value, types) and _is(value, name))
