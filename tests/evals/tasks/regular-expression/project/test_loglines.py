import signal
import unittest

from loglines import read


class LogLinesTest(unittest.TestCase):
    def test_with_a_component(self):
        self.assertEqual(read("12:30:01 INFO [db] connected"), ("12:30:01", "INFO", "db", "connected"))
        self.assertEqual(read("12:30:01 WARN [disk-1] is full"), ("12:30:01", "WARN", "disk-1", "is full"))

    def test_without_one(self):
        self.assertEqual(read("12:30:01 ERROR no such file"), ("12:30:01", "ERROR", None, "no such file"))

    def test_other_lines(self):
        for line in ("", "12:30 INFO x", "12:30:01 LOUD x", "12:30:01 INFO "):
            with self.subTest(line):
                self.assertIsNone(read(line))

    def test_a_long_line_is_read_at_once(self):
        def late(*_):
            raise TimeoutError("it takes too long")

        before = signal.signal(signal.SIGALRM, late)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.alarm, 0)
        signal.alarm(20)
        line = "12:30:01 INFO [db] " + "a" * 5000 + "\n\n"
        self.assertIsNone(read(line))
