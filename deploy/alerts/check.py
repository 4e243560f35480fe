"""Checks what Prometheus and Grafana would reject, or show empty: syntax of PromQL, severities, labels in messages.

tests/tests/deploy.rs checks the names of metrics and labels.
"""

import json
import re
import sys

import promql_parser as promql
import yaml

# Grafana replaces them before it sends a query.
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$__interval": "1m"}


def is_number(expression):
    """A literal, a function of nothing, as time(), or arithmetic of these."""
    if isinstance(expression, promql.BinaryExpr):
        return is_number(expression.lhs) and is_number(expression.rhs)
    if isinstance(expression, promql.ParenExpr):
        return is_number(expression.expr)
    if isinstance(expression, promql.Call):
        return not expression.args
    return isinstance(expression, promql.NumberLiteral)


def labels(expression):
    """The labels of a result, where an aggregation names them; None: those of the metrics."""
    if isinstance(expression, promql.AggregateExpr):
        modifier = expression.modifier
        return set() if modifier is None else set(modifier.labels) if modifier.type == promql.AggModifierType.By else None
    if isinstance(expression, promql.BinaryExpr):
        sides = [side for side in (expression.lhs, expression.rhs) if not is_number(side)]
        # The right side of `and` and the divisor only have to match; of `or` both have to have the label.
        found = [labels(side) for side in sides]
        return set.intersection(*found) if None not in found and str(expression.op) == "or" else found[0]
    if isinstance(expression, promql.ParenExpr):
        return labels(expression.expr)
    if isinstance(expression, promql.Call):
        # Of histogram_quantile the last argument is the vector, without `le`.
        found = labels(expression.args[-1])
        return found - {"le"} if found and expression.func.name == "histogram_quantile" else found
    return None


def rules(path):
    with open(path) as file:
        groups = yaml.safe_load(file)["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        name = rule.get("alert", "?")
        unknown = rule.keys() - {"alert", "expr", "for", "labels", "annotations"}
        if unknown:
            yield f"{name}: unknown fields {sorted(unknown)}"
        if rule.get("labels", {}).get("severity") not in ("critical", "warning"):
            yield f"{name}: its severity is neither critical nor warning"
        if not re.fullmatch(r"\d+[smhd]", str(rule.get("for", "0s"))):
            yield f"{name}: `for` is no duration"
        try:
            expression = promql.parse(rule.get("expr", ""))
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        known = labels(expression)
        summary = rule.get("annotations", {}).get("summary", "")
        used = set(re.findall(r"\$labels\.(\w+)", summary))
        if not summary or (known is not None and used - known):
            yield f"{name}: its summary uses {sorted(used - (known or set()))}, the result has {sorted(known or [])}"


def expressions(value):
    """All values of keys `expr`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "expr":
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def dashboard(path):
    with open(path) as file:
        panels = json.load(file)
    for expression in expressions(panels):
        text = expression
        for variable, value in VARIABLES.items():
            text = text.replace(variable, value)
        try:
            promql.parse(text)
        except ValueError as error:
            yield f"`{expression}`: {error}"


def main():
    errors = []
    for path in sys.argv[1:]:
        check = dashboard if path.endswith(".json") else rules
        errors += [f"{path}: {error}" for error in check(path)]
    print("\n".join(errors) if errors else f"{len(sys.argv) - 1} files are right")
    sys.exit(1 if errors else 0)


main()
