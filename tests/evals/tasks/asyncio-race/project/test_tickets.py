import asyncio
import unittest

from tickets import Journal, Tickets


class TicketsTest(unittest.IsolatedAsyncioTestCase):
    async def test_each_number_is_given_once(self):
        tickets = Tickets(Journal())
        given = await asyncio.gather(*(tickets.next() for _ in range(50)))
        self.assertEqual(sorted(given), list(range(1, 51)))

    async def test_numbers_are_stored_in_order(self):
        journal = Journal()
        tickets = Tickets(journal)
        await asyncio.gather(*(tickets.next() for _ in range(10)))
        self.assertEqual(journal.numbers, list(range(1, 11)))

    async def test_close_waits_for_what_is_stored_in_the_background(self):
        journal = Journal()
        tickets = Tickets(journal)
        for _ in range(5):
            tickets.next_later()
        await tickets.close()
        self.assertEqual(journal.numbers, [1, 2, 3, 4, 5])
