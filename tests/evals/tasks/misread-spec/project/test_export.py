import unittest

from export import export


class ExportTest(unittest.TestCase):
    def test_a_file(self):
        measurements = [(20.9, 1.5), (10, None), (30.5, -0.0625)]
        self.assertEqual(
            export(measurements), b"MEAS 2\r\n10;-\r\n20;1,500\r\n30;-0,062\r\nEND 3\r\n"
        )

    def test_an_empty_one(self):
        self.assertEqual(export([]), b"MEAS 2\r\nEND 0\r\n")

    def test_two_at_one_time(self):
        self.assertEqual(export([(5, 2.0), (5, None)]), b"MEAS 2\r\n5;2,000\r\n5;-\r\nEND 2\r\n")

    def test_before_1970(self):
        self.assertEqual(export([(-0.5, 1.0)]), b"MEAS 2\r\n-1;1,000\r\nEND 1\r\n")
