"""Edits of the prompts of a task: `client.act(project, prompt, edits=[append_to("last-user", "Be brief.")])`."""

from turnwright_core.chat.message import Image, Text
from turnwright_core.chat.prompt_edits import PromptEdit, append, append_to, insert_after, insert_before, prepend

__all__ = ["Image", "PromptEdit", "Text", "append", "append_to", "insert_after", "insert_before", "prepend"]
