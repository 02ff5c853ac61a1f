"""Evaluates expressions of numbers, + - * / and parentheses."""

import re

_TOKEN = re.compile(r"\s*(?:(\d+)|(.))")


def evaluate(text):
    tokens = [number or sign for number, sign in _TOKEN.findall(text)]
    value, rest = _sum(tokens)
    if rest:
        raise ValueError(f"unexpected {rest[0]!r}")
    return value


def _sum(tokens):
    value, rest = _atom(tokens)
    while rest and rest[0] in "+-*/":
        sign = rest[0]
        right, rest = _atom(rest[1:])
        if sign == "+":
            value += right
        elif sign == "-":
            value -= right
        elif sign == "*":
            value *= right
        else:
            value /= right
    return value, rest


def _atom(tokens):
    if not tokens:
        raise ValueError("the expression ends too early")
    first, rest = tokens[0], tokens[1:]
    if first == "(":
        return _sum(rest)
    return float(first), rest
