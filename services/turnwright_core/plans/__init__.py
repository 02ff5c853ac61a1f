"""Plans: their model, their items, and how they are stored; no other module interprets the body of a plan.

Nothing here reads the store or a message. Source: architecture 9; rows RP01-RP08, AP08, AP09, AP16.
"""
