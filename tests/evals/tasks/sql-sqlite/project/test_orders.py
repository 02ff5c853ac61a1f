import unittest

from orders import add_customer, add_order, connect, report


class OrdersTest(unittest.TestCase):
    def setUp(self):
        self.database = connect()
        self.addCleanup(self.database.close)

    def test_names_may_have_quotes(self):
        add_order(self.database, add_customer(self.database, "O'Brien"), 100)
        self.assertEqual(report(self.database), [("O'Brien", 1, 100)])

    def test_a_customer_without_orders_is_listed(self):
        add_customer(self.database, "ann")
        self.assertEqual(report(self.database), [("ann", 0, 0)])

    def test_cancelled_orders_do_not_count(self):
        ann = add_customer(self.database, "ann")
        add_order(self.database, ann, 100)
        add_order(self.database, ann, 900, "cancelled")
        bob = add_customer(self.database, "bob")
        add_order(self.database, bob, 50, "cancelled")
        self.assertEqual(report(self.database), [("ann", 1, 100), ("bob", 0, 0)])

    def test_two_customers_may_have_one_name(self):
        for cents in (100, 200):
            add_order(self.database, add_customer(self.database, "ann"), cents)
        self.assertEqual(report(self.database), [("ann", 1, 100), ("ann", 1, 200)])
