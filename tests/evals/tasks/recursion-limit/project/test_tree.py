import sys
import unittest

from tree import depth, flip, names

SMALL = ("a", [("b", [("c", [])]), ("d", [])])


def deep(levels):
    tree = ("leaf", [])
    for number in range(levels):
        tree = (number, [tree])
    return tree


class TreeTest(unittest.TestCase):
    def test_small_trees(self):
        self.assertEqual(depth(SMALL), 3)
        self.assertEqual(names(SMALL), ["a", "b", "c", "d"])
        self.assertEqual(flip(SMALL), ("a", [("d", []), ("b", [("c", [])])]))
        self.assertEqual(SMALL, ("a", [("b", [("c", [])]), ("d", [])]))

    def test_deep_trees(self):
        limit = sys.getrecursionlimit()
        tree = deep(20_000)
        self.assertEqual(depth(tree), 20_001)
        self.assertEqual(names(tree)[-1], "leaf")
        self.assertEqual(names(flip(tree)), names(tree))
        self.assertEqual(sys.getrecursionlimit(), limit)
