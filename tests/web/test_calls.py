from batchsim.scenario.rules import RULES
from batchsim.web.calls import call


def test_a_rule_that_forms_batches_or_has_a_wait_of_its_own_is_asked_while_all_compute():
    asked = {rule.__name__ for rule in RULES if call(rule)["while_busy"]}
    assert asked == {"PreferredUntilLate", "FrozenBatches", "StalledBatches", "SleepingPoll", "LearnedCork"}
