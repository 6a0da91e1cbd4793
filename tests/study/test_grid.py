from batchsim.study.grid import Points


def test_the_labels_of_listed_settings_are_numbers_where_all_are():
    points = Points.of([{"servers": 1, "limit": 5}, {"servers": 2.5, "limit": "none"}])
    assert {name: labels.tolist() for name, labels in points.columns().items()} == {
        "servers": [1, 2.5],
        "limit": ["5", "'none'"],
    }
