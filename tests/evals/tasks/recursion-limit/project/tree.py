"""Trees of tuples: (name, [children])."""


def depth(tree):
    name, children = tree
    return 1 + max((depth(child) for child in children), default=0)


def names(tree):
    """All names, each before those of its children, from left to right."""
    name, children = tree
    found = [name]
    for child in children:
        found += names(child)
    return found


def flip(tree):
    """The tree with all children in the opposite order."""
    name, children = tree
    return (name, [flip(child) for child in reversed(children)])
