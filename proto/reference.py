"""Prints the contract as one page of Markdown, from its compiled files (`lint.sh --reference FILE`).

    buf build --output -#format=json | python3 reference.py

Reads a descriptor set with comments. Anchors are full names without the package
(`#writerequest`, `#columns.block`), which no two types of the contract share.
"""

import json
import sys

PACKAGE = "oxtsdb."
# Numbers of descriptor.proto, with which a location's path names an element.
MESSAGES, ENUMS, SERVICES = 4, 5, 6
FIELDS, NESTED_MESSAGES, NESTED_ENUMS, ONEOFS = 2, 3, 4, 8
SYNTAX = 12
IDEMPOTENCY = {
    "IDEMPOTENT": "idempotent",
    "NO_SIDE_EFFECTS": "idempotent, without side effects",
    None: "not declared idempotent",
}
MAX_ITEMS = "[oxtsdb.common.v1.max_items]"


class File:
    """A file and the comments of its elements, by path."""

    def __init__(self, descriptor):
        self.name = descriptor["name"]
        self.package = descriptor["package"]
        self.descriptor = descriptor
        self.comments = {}
        for location in descriptor["sourceCodeInfo"]["location"]:
            path = tuple(location.get("path", []))
            self.comments[path] = location.get("leadingComments", "")

    def comment(self, path):
        """The lines of an element's comment, as Markdown."""
        lines = [line.removeprefix(" ").rstrip() for line in self.comments.get(path, "").strip("\n").split("\n")]
        if any(line.lstrip().startswith(("* ", "- ")) for line in lines):
            return lines
        # Indented lines are examples: Markdown wants four spaces.
        return [f"  {line}" if line.startswith("  ") else line for line in lines]

    def messages(self):
        """All messages and enums in the order of the file, outer ones first: (name, path, descriptor, is enum)."""

        def walk(prefix, path, message):
            yield prefix, path, message, False
            for index, nested in enumerate(message.get("nestedType", [])):
                if not nested.get("options", {}).get("mapEntry"):
                    yield from walk(f"{prefix}.{nested['name']}", (*path, NESTED_MESSAGES, index), nested)
            for index, nested in enumerate(message.get("enumType", [])):
                yield f"{prefix}.{nested['name']}", (*path, NESTED_ENUMS, index), nested, True

        for index, message in enumerate(self.descriptor.get("messageType", [])):
            yield from walk(message["name"], (MESSAGES, index), message)
        for index, enum in enumerate(self.descriptor.get("enumType", [])):
            yield enum["name"], (ENUMS, index), enum, True


def cell(lines):
    """A comment within a table, on one line."""
    return " ".join(line.strip() for line in lines).replace("|", "\\|").strip()


def anchor(name):
    return name.lower()


def type_name(field, entries):
    """The type of a field, linked to where it is described."""
    if "typeName" not in field:
        return field["type"].removeprefix("TYPE_").lower()
    name = field["typeName"].removeprefix(".")
    if name in entries:
        key, value = entries[name]["field"]
        return f"map of {type_name(key, entries)} to {type_name(value, entries)}"
    if not name.startswith(PACKAGE):
        return f"`{name}`"
    # Behind package and version: oxtsdb.data.v1.
    local = name.split(".", 3)[3]
    return f"[{local}](#{anchor(local)})"


def label(field, message, entries):
    """How many, and with which others."""
    if field.get("typeName", "").removeprefix(".") in entries:
        return ""
    if field.get("label") == "LABEL_REPEATED":
        return "repeated "
    if field.get("proto3Optional"):
        return "optional "
    if "oneofIndex" in field:
        return f"one of `{message['oneofDecl'][field['oneofIndex']]['name']}`: "
    return ""


def write_message(file, name, path, message, entries, out):
    out.append(f'### <a id="{anchor(name)}"></a>{name}\n')
    out.extend(file.comment(path))
    out.append("")
    if not message.get("field"):
        out.append("No fields.\n")
        return
    out.append("| # | Field | Type | |")
    out.append("|--:|---|---|---|")
    for index, field in enumerate(message["field"]):
        text = cell(file.comment((*path, FIELDS, index)))
        bound = field.get("options", {}).get(MAX_ITEMS)
        if bound:
            text += f" *(At most {bound:,} in a message.)*"
        kind = label(field, message, entries) + type_name(field, entries)
        out.append(f"| {field['number']} | `{field['name']}` | {kind} | {text} |")
    out.append("")


def write_enum(file, name, path, enum, out):
    out.append(f'### <a id="{anchor(name)}"></a>{name}\n')
    out.extend(file.comment(path))
    out.append("")
    out.append("| # | Value | |")
    out.append("|--:|---|---|")
    for index, value in enumerate(enum["value"]):
        text = cell(file.comment((*path, 2, index)))
        out.append(f"| {value.get('number', 0)} | `{value['name']}` | {text} |")
    out.append("")


def write_service(file, index, service, out):
    out.append(f'## <a id="{anchor(service["name"])}"></a>{file.package}.{service["name"]}\n')
    out.extend(file.comment((SERVICES, index)))
    out.append("")
    for number, method in enumerate(service["method"]):
        request, response = (
            ("stream of " if method.get(streaming) else "") + type_name({"typeName": method[side]}, {})
            for side, streaming in [("inputType", "clientStreaming"), ("outputType", "serverStreaming")]
        )
        level = method.get("options", {}).get("idempotencyLevel")
        out.append(f'### <a id="{anchor(service["name"])}.{anchor(method["name"])}"></a>{service["name"]}.{method["name"]}\n')
        out.append(f"{request} → {response}; {IDEMPOTENCY[level]}.\n")
        out.extend(file.comment((SERVICES, index, 2, number)))
        out.append("")


def main():
    descriptors = json.load(sys.stdin)["file"]
    files = [File(descriptor) for descriptor in descriptors if descriptor["package"].startswith(PACKAGE)]
    # Files with services first, operators' calls last of them, then what they use.
    files.sort(key=lambda file: ("service" not in file.descriptor, "admin" in file.name, file.name))
    entries = {}
    for file in files:
        for name, _, message, is_enum in file.messages():
            for nested in [] if is_enum else message.get("nestedType", []):
                if nested.get("options", {}).get("mapEntry"):
                    entries[f"{file.package}.{name}.{nested['name']}"] = nested

    out = ["<!-- Generated from proto/oxtsdb by `proto/lint.sh --reference`; do not edit. -->", "# Reference of the contract\n"]
    out.append("How to generate stubs and to configure retries: `proto/README.md`.\n")
    for file in files:
        for index, service in enumerate(file.descriptor.get("service", [])):
            methods = ", ".join(
                f"[{method['name']}](#{anchor(service['name'])}.{anchor(method['name'])})" for method in service["method"]
            )
            out.append(f"- [{file.package}.{service['name']}](#{anchor(service['name'])}): {methods}")
    out.append("- Messages and enums: " + ", ".join(f"[{file.name}](#{file.name})" for file in files))
    out.append("\n## Conventions\n")
    conventions = next(file for file in files if file.name.endswith("common/v1/common.proto"))
    out.extend(conventions.comment((SYNTAX,))[2:])
    out.append("")
    for file in files:
        for index, service in enumerate(file.descriptor.get("service", [])):
            write_service(file, index, service, out)
    for file in files:
        out.append(f'## <a id="{file.name}"></a>{file.name}\n')
        # The conventions have their place above.
        out.extend(file.comment((SYNTAX,))[: 1 if file is conventions else None])
        out.append("")
        for name, path, descriptor, is_enum in file.messages():
            if is_enum:
                write_enum(file, name, path, descriptor, out)
            else:
                write_message(file, name, path, descriptor, entries, out)
    print("\n".join(out).rstrip("\n"))


if __name__ == "__main__":
    main()
