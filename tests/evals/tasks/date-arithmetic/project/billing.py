"""When invoices are due."""

from datetime import date, timedelta


def add_months(day, months):
    """The same day so many months later; the last day of the month where there is no such day."""
    return day + timedelta(days=30 * months)


def due_date(issued, months=1):
    """The working day on which an invoice is due: a Saturday or Sunday is moved to the next Monday."""
    due = add_months(issued, months)
    if due.weekday() > 5:
        due += timedelta(days=1)
    return due


def is_leap(year):
    return year % 4 == 0
