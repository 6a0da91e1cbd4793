import dataclasses

import pytest

import batchsim as bs
from batchsim.scenario import OpenLoop, Rule, Service
from batchsim.scenario.toml import KINDS, keys_of, kind_of


def test_every_workload_rule_and_service_of_batchsim_has_a_kind():
    bases = {"workload": (OpenLoop, bs.ClosedLoop), "rule": Rule, "service": Service}
    for part_name, base in bases.items():
        classes = [cls for cls in vars(bs).values() if isinstance(cls, type) and issubclass(cls, base)]
        public = {cls.__name__ for cls in classes} - {"Rule"}
        assert public
        assert public <= KINDS[part_name].keys()
        assert all(getattr(bs, name) is KINDS[part_name][name][0] for name in public)


def test_a_name_means_one_kind():
    names = [name for kinds in KINDS.values() for name in kinds]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("part", KINDS)
def test_a_kind_is_written_under_the_name_of_its_class(part):
    for name, (maker, *_) in KINDS[part].items():
        if isinstance(maker, type):
            assert maker.__name__ == name
            assert keys_of(maker).keys() == {f.name for f in dataclasses.fields(maker)}


def test_a_subclass_of_the_same_name_is_another_kind():
    @dataclasses.dataclass(frozen=True)
    class Poisson(bs.Poisson):
        pass

    with pytest.raises(TypeError, match=r"workload must be one of Poisson, .* to be written"):
        kind_of("workload", Poisson(9))


def test_a_measurement_and_a_published_table_are_written_as_tables():
    assert kind_of("service", bs.published("gpunet-175ms/v100-32gb/fp16")) == "Table"
