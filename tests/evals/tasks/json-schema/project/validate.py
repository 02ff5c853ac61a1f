"""A validator for the part of JSON Schema that schema.json uses."""

_TYPES = {"object": dict, "array": list, "string": str, "integer": int}


def errors(value, schema, path="$"):
    """Sentences on what is wrong with a value; none if it is valid."""
    found = []
    if "type" in schema and not isinstance(value, _TYPES[schema["type"]]):
        found.append(f"{path} is no {schema['type']}")
    if isinstance(value, dict):
        for name, child in value.items():
            if name in schema.get("properties", {}):
                found += errors(child, schema["properties"][name], f"{path}.{name}")
    return found
