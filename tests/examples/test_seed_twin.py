"""The twin network in a user's own loop learns values and derivatives."""

from examples.seed_twin import problem, train

from pullback.derivatives import gradient_by_differences


def test_its_labels_are_the_derivatives_of_its_values():
    x, _, dydx = problem(16, seed=3)

    def value(z):
        return (2 * z[:, 0]).sin() * (-z[:, 1].square()).exp()

    assert (gradient_by_differences(value, x.double()) - dydx).abs().max() < 1e-6


def test_it_learns_both():
    value, derivative = train(rows=128, epochs=60)

    # The values spread by 0.47 and the derivatives by 0.8: both are learnt to a few per cent.
    assert value < 0.03
    assert derivative < 0.1
