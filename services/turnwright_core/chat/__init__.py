"""Messages of a conversation, and how a streaming reply becomes one.

    deltas ──► PartialReply ──► Message        the only fold; provider, executor, watchers and clients use it
    entries ──► timeline ──► RunMessage        the messages of a run, for clients and for transcripts

Pure: no wire, no clock. Source: rows RD01-RD09; decision C40.
"""
