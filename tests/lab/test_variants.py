"""A sweep's variants: one parameter of a scenario changed, everything else the same."""

import pytest

from penstock.errors import InvalidScenario
from penstock.lab.engine.variants import Variants, variants, varied
from penstock.lab.setups import chain


def test_a_parameter_of_a_link_or_a_broker_is_set_on_all_of_them():
    changed = varied(chain(3, messages=10), {"loss": 0.25, "workers": 2.0, "duration": 3.0})
    assert {link.loss for link in changed.link} == {0.25}
    assert {broker.workers for broker in changed.broker} == {2}
    assert changed.duration == 3.0


def test_an_unknown_parameter_is_answered_with_the_nearest():
    with pytest.raises(InvalidScenario, match="did you mean 'loss'"):
        varied(chain(2, messages=10), {"los": 0.1})


@pytest.mark.parametrize("parameters", [{"loss": 2.0}, {"workers": 1.5}, {"delay": "slow"}])
def test_a_value_that_cannot_be_is_refused(parameters):
    with pytest.raises(InvalidScenario):
        varied(chain(2, messages=10), parameters)


def test_more_loss_delivers_less():
    measured = [Variants(chain(3, messages=300)).measure({"loss": loss}, seed=1) for loss in (0.0, 0.2)]
    assert measured[0]["delivered"] == measured[0]["published"] == 300
    assert measured[1]["delivered"] < 250
    assert measured[1]["dropped packets"] > 0


def test_every_experiment_has_variants():
    assert variants("delay-cdf-hypoexponential-fit").scenario.name == "chain-5-2000"
