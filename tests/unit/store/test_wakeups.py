"""Who is woken by which commits, and what a subscriber to any scope hears of them."""

from turnwright_store.edge.wakeups import SCOPES_MAX, Wakeups
from turnwright_store.ports import ANY_SCOPE


def test_a_subscriber_to_any_scope_hears_which_scopes_were_raised():
    wakeups = Wakeups()
    subscription = wakeups.subscribe((ANY_SCOPE,))
    wakeups.wake({1, 2})
    wakeups.wake({2, 3})
    assert subscription.woken.is_set()
    assert (subscription.take(), subscription.take()) == (frozenset({1, 2, 3}), frozenset())


def test_a_subscriber_to_some_scopes_is_woken_by_them_alone():
    wakeups = Wakeups()
    subscription = wakeups.subscribe((1, 2))
    wakeups.wake({3})
    assert not subscription.woken.is_set()
    wakeups.wake({2})
    assert subscription.woken.is_set()


def test_whoever_may_have_missed_some_is_told_so():
    wakeups = Wakeups()
    subscription = wakeups.subscribe((ANY_SCOPE,))
    wakeups.wake({1})
    wakeups.wake_all()
    wakeups.wake({2})
    assert (subscription.take(), subscription.take()) == (None, frozenset())


def test_more_scopes_than_a_subscriber_keeps_are_as_good_as_missed():
    wakeups = Wakeups()
    subscription = wakeups.subscribe((ANY_SCOPE,))
    wakeups.wake(set(range(1, SCOPES_MAX + 2)))
    assert subscription.take() is None


def test_a_closed_subscription_hears_nothing():
    wakeups = Wakeups()
    subscription = wakeups.subscribe((ANY_SCOPE,))
    subscription.close()
    wakeups.wake({1})
    assert (subscription.woken.is_set(), subscription.take()) == (False, frozenset())
