"""What a message of a conversation is, and how a model's reply grows out of increments.

    deltas ──► PartialReply ──► Message        the one fold: provider, executor, watchers and clients use it
    entries ──► timeline ──► RunMessage        the messages of a run: clients read them, transcripts are made of them

Pure: no wire, no clock. Source: rows RD01-RD09; decision C40.
"""
