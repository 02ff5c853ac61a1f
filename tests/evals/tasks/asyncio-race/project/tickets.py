"""Hands out numbers of tickets, which are stored by a slow journal."""

import asyncio


class Journal:
    """Stores numbers, slowly."""

    def __init__(self):
        self.numbers = []

    async def store(self, number):
        await asyncio.sleep(0)
        self.numbers.append(number)


class Tickets:
    def __init__(self, journal):
        self._journal = journal
        self._last = 0
        self._storing = []

    async def next(self):
        """The next number, which nobody else gets."""
        number = self._last + 1
        await self._journal.store(number)
        self._last = number
        return number

    def next_later(self):
        """Have a number stored in the background."""
        self._storing.append(asyncio.ensure_future(self.next()))

    async def close(self):
        """Returns once everything is stored."""
        for task in self._storing:
            task.cancel()
