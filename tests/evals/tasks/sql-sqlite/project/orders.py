"""Customers and their orders, in SQLite."""

import sqlite3
from pathlib import Path


def connect():
    database = sqlite3.connect(":memory:")
    database.executescript((Path(__file__).parent / "schema.sql").read_text())
    return database


def add_customer(database, name):
    return database.execute(f"INSERT INTO customers (name) VALUES ('{name}')").lastrowid


def add_order(database, customer, cents, state="open"):
    database.execute("INSERT INTO orders (customer, cents, state) VALUES (?, ?, ?)", (customer, cents, state))


def report(database):
    """Name, number of orders and their sum, for every customer; cancelled orders do not count."""
    return database.execute(
        "SELECT name, count(*), sum(cents) FROM customers JOIN orders ON customer = customers.id GROUP BY name"
    ).fetchall()
