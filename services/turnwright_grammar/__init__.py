"""Model text to commands and edits: a pure library without I/O.

`reader.parser.read_reply` reads what a model wrote, in any of the formats models write, and
`reader.streaming.ReplyReader` does so while it is being written; `native.commands_from_call` does the same for a
vendor's native call; `edits.apply.apply_edit` applies the body of a `set` to a text. None of them raises, whatever the
model wrote.

Source: architecture section 5.
"""
