"""Names of the contract that some language's stubs could not carry. `make stubs` compiles three of these languages."""

import importlib
import keyword
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

REPO = Path(__file__).resolve().parents[2]
# Accessors that Java and Kotlin add to a field's own: of a text, of an enum, of what is repeated.
TEXT, ENUM, REPEATED = ("bytes",), ("value",), ("list", "count", "builder", "builder_list", "or_builder_list")
LANGUAGES = ("csharp_namespace", "go_package", "java_package", "php_namespace", "ruby_package")


def contract() -> list[FileDescriptor]:
    """Every file of the contract."""
    paths = sorted((REPO / "protos").rglob("*.proto"))
    names = [path.relative_to(REPO / "protos").with_suffix("").as_posix().replace("/", ".") for path in paths]
    return [importlib.import_module(f"{name}_pb2").DESCRIPTOR for name in names]


def messages(file: FileDescriptor) -> Iterator[Descriptor]:
    """Every message of a file, nested ones included."""
    waiting = list(file.message_types_by_name.values())
    while waiting:
        waiting.extend((message := waiting.pop()).nested_types)
        yield message


def accessors(field: FieldDescriptor) -> set[str]:
    """What else a field is called in Java, in the contract's own spelling."""
    more = REPEATED if field.is_repeated else ()
    more += TEXT if field.type == FieldDescriptor.TYPE_STRING else ()
    more += ENUM if field.type == FieldDescriptor.TYPE_ENUM else ()
    return {f"{field.name}_{word}" for word in more}


def problems(message: Descriptor) -> list[str]:
    """What the stubs of some language make of a message's fields that does not compile or cannot be written."""
    names = {field.name for field in message.fields}
    taken = [(f.name, other) for f in message.fields for other in sorted(accessors(f) & names)]
    reserved = [name for name in sorted(names) if keyword.iskeyword(name)]
    return [f"{message.full_name}.{name} and .{other} are one accessor in Java" for name, other in taken] + [
        f"{message.full_name}.{name} is a keyword of Python" for name in reserved
    ]


def test_every_field_has_a_name_in_every_language() -> None:
    assert [problem for file in contract() for message in messages(file) for problem in problems(message)] == []


@pytest.mark.parametrize(
    "fields", [("body:9", "body_bytes:3"), ("global:3",), ("x:14", "x_value:5"), ("*x:5", "x_count:5")]
)
def test_a_name_that_some_language_cannot_carry_is_found(fields: tuple[str, ...]) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    file.enum_type.add(name="E").value.add(name="E_UNSPECIFIED", number=0)
    message = file.message_type.add(name="M")
    for number, field in enumerate(fields, 1):
        name, kind = field.removeprefix("*").split(":")
        type_name = ".x.E" if kind == "14" else None
        label = 3 if field.startswith("*") else 1
        message.field.add(name=name, number=number, label=label, type=int(kind), type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    assert len(problems(pool.FindMessageTypeByName("x.M"))) == 1


def test_every_file_names_its_package_in_each_language() -> None:
    for file in contract():
        options = file.GetOptions()
        assert {name for name in LANGUAGES if options.HasField(name)} == set(LANGUAGES), file.name
        assert options.java_package == f"com.{file.package}"
        assert options.csharp_namespace == file.package.title()
        assert options.go_package.partition(";")[0].endswith(file.package.replace(".", "/"))
