"""Values behave as frozen dataclasses with slots do; where they differ, the difference is meant."""

from __future__ import annotations

import copy
import pickle

import pytest

from rota._core.value import replace, value


@value
class Point:
    """A point."""

    x: int
    y: int = 0

    @property
    def sum(self) -> int:
        return self.x + self.y


@value
class Other:
    x: int
    y: int = 0


@value
class Positive:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


def test_fields_are_given_by_place_or_by_name_and_defaults_fill_the_rest() -> None:
    assert (Point(1).y, Point(1, 2).y, Point(x=1, y=3).y) == (0, 2, 3)
    assert Point(1, 2).sum == 3


@pytest.mark.parametrize(
    ("args", "given", "message"),
    [
        ((), {}, "Point needs x"),
        ((1, 2, 3), {}, "Point has 2 fields, 3 were given"),
        ((1,), {"z": 3}, "takes no z"),
        ((1,), {"x": 3}, "takes no x"),
    ],
)
def test_wrong_fields_are_refused_by_name(args: tuple[int, ...], given: dict[str, int], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Point(*args, **given)


def test_values_are_equal_by_what_they_hold_and_only_to_their_own_kind() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    others: list[object] = [Other(1, 2), (1, 2), None]
    assert all(Point(1, 2) != other for other in others)
    assert len({Point(1, 2), Point(1, 2), Point(2, 1)}) == 2


def test_a_value_cannot_be_changed_nor_given_more_than_its_fields() -> None:
    point = Point(1)
    for name in ("x", "z"):
        with pytest.raises(AttributeError, match="frozen"):
            setattr(point, name, 2)
    with pytest.raises(AttributeError, match="frozen"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_replace_makes_another_value_and_checks_it() -> None:
    assert replace(Point(1, 2), y=5) == Point(1, 5)
    with pytest.raises(ValueError, match="negative"):
        replace(Positive(1), x=-1)
    with pytest.raises(TypeError, match="takes no z"):
        replace(Point(1), z=1)


def test_a_value_can_be_copied_pickled_matched_and_printed() -> None:
    point = Point(1, 2)
    assert copy.deepcopy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)
    assert repr(point) == "Point(x=1, y=2)"
    assert Point.__doc__ == "A point."
