"""The work of test_durable_turns.py as a LangGraph agent with its SQLite checkpointer, each step durable.

A process of its own: for each line `RUNS TURNS` it does so many runs at once of so many turns, and answers with a line.
Messages are plain dictionaries, and files are read without any check: what is left is what the graph itself costs.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send


class State(TypedDict):
    """What a run keeps."""

    messages: Annotated[list[dict[str, Any]], operator.add]
    turns: int


def graph_of(folder: Path) -> StateGraph[Any]:
    """A model that asks for two files a turn, and tools that read them side by side."""

    async def model(state: State) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in state["messages"])
        if turn == state["turns"]:
            return {}
        calls = [{"name": "get", "path": f"{name}_{turn % 20}.txt", "id": f"{name}{turn}"} for name in "ab"]
        reply = {"role": "assistant", "content": f"turn {turn}", "calls": calls}
        return {"messages": [reply]}

    def then(state: State) -> list[Send] | str:
        last = state["messages"][-1]
        return [Send("tool", call) for call in last["calls"]] if last["role"] == "assistant" else END

    async def tool(call: dict[str, Any]) -> dict[str, Any]:
        text = (folder / call["path"]).read_text()
        return {"messages": [{"role": "tool", "id": call["id"], "content": text}]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", then, ["tool", END])
    graph.add_edge("tool", "model")
    return graph


async def main(project: Path, database: Path) -> None:
    """Do what the lines of stdin ask for."""
    async with AsyncSqliteSaver.from_conn_string(str(database)) as saver:
        agent = graph_of(project).compile(checkpointer=saver)
        number = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            runs, turns = map(int, line.split())
            given = {"messages": [{"role": "user", "content": "Read."}], "turns": turns}
            threads = range(number, number + runs)
            number += runs
            configs = [
                {"configurable": {"thread_id": str(thread)}, "recursion_limit": 3 * turns + 9} for thread in threads
            ]
            ended = await asyncio.gather(*(agent.ainvoke(given, config, durability="sync") for config in configs))
            assert all(len(state["messages"]) == 1 + 3 * turns for state in ended)
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
