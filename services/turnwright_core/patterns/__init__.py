"""Patterns over paths and contents, and patches of texts.

A pattern is a glob, a `/regex/flags`, an xpath, a jsonpath or plain text, told apart by shape (see
`shapes`). `matching` matches, searches and replaces with any of them, or raises `PatternError`; none hangs, because
every run has a deadline.

`replacing` replaces what a model wrote down from memory, tolerant of whitespace; `patch` shows two texts as a diff, and
takes some of it back. None of them raises.

Source: architecture section 5, RU272 to RU276, RU294.
"""
