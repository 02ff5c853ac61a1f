"""The states of an order."""


class WrongEventError(Exception):
    """The event does not fit the state."""


class Order:
    def __init__(self):
        self.state = "new"
        self.history = []

    def handle(self, event):
        self.history.append(self.state)
        if event == "pay":
            self.state = "paid"
        elif event == "ship" and self.state != "cancelled":
            self.state = "shipped"
        elif event == "cancel":
            self.state = "cancelled"
        elif event == "return":
            self.state = "new"
        return self.state
