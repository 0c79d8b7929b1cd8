"""Opening hours, the clocks that change, and who is there at the same time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fedauc.errors import InputError
from fedauc.federation.calendar import DAYS, Window, alike, together

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# 2026-06-01 is a Monday.
@pytest.mark.parametrize(
    ("opening", "inside", "outside"),
    [
        (
            "Mon-Fri 20:00-06:00",
            ["01T20:00", "06T05:59:59"],
            ["01T19:59:59", "06T06:00", "01T05:00", "06T20:00"],
        ),
        ("Sat,Sun", ["06T00:00", "07T23:59:59"], ["05T23:59:59", "08T00:00"]),
        ("sat, sun", ["06T00:00"], ["05T12:00"]),
        ("22:00-04:30", ["01T00:00", "03T22:00", "07T04:29:59"], ["01T04:30", "03T21:59"]),
        ("Mon,Wed 08:00-12:00:30", ["01T08:00", "03T12:00:29"], ["02T09:00", "03T12:00:30"]),
        ("  Mon , Wed - Thu   8:00 - 12:00 ", ["01T08:00", "04T11:59"], ["02T09:00", "05T09:00"]),
        ("Fri-Mon 10:00-11:00", ["05T10:00", "07T10:30", "08T10:59"], ["02T10:00", "04T10:00"]),
        ("Tue", ["02T00:00", "02T23:59:59"], ["01T23:59:59", "03T00:00"]),
        ("Tue 00:00-24:00", ["02T00:00", "02T23:59:59"], ["01T23:59:59", "03T00:00"]),
        ("Tue 20:00-24:00:00", ["02T23:59:59"], ["03T00:00"]),
        ("Tue 20:00-00:00", ["02T23:59:59"], ["03T00:00"]),
        ("Tue 09:00-09:00", ["02T09:00", "03T08:59:59"], ["02T08:59", "03T09:00"]),
    ],
)
def test_an_opening_is_read(opening, inside, outside):
    window = Window(open=(opening,))
    assert [text for text in inside if not window.is_open(utc(f"2026-06-{text}"))] == []
    assert [text for text in outside if window.is_open(utc(f"2026-06-{text}"))] == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"timezone": "Europe/Zurch"}, "'Europe/Zurch'. Did you mean 'Europe/Zurich'"),
        ({"timezone": "europe/zürich"}, "Did you mean 'Europe/Zurich'"),
        ({"timezone": "qqqqqq"}, "'qqqqqq'. Names are like"),
        ({"timezone": ""}, "time zone ''"),
        ({"timezone": "../UTC"}, "time zone '../UTC'"),
        ({"timezone": "Europe"}, "time zone 'Europe'"),
        ({"timezone": None}, "time zone None"),
        ({"open": ("Mon-Fry 20:00-06:00",)}, "no day 'Fry'. Did you mean 'Fri'"),
        ({"open": ("Monday",)}, "no day 'Monday'. Did you mean 'Mon'"),
        ({"open": ("",)}, "open=''"),
        ({"open": (" ",)}, "open=' '"),
        ({"open": ("Mon-",)}, "open='Mon-'"),
        ({"open": ("Mon-Tue-Wed",)}, "open='Mon-Tue-Wed'"),
        ({"open": ("Mon,,Tue",)}, "open='Mon,,Tue'"),
        ({"open": ("Mon Tue",)}, "open='Mon Tue'"),
        ({"open": ("Mon 20:00",)}, "open='Mon 20:00'"),
        ({"open": ("Mon20:00-21:00",)}, "open='Mon20:00-21:00'"),
        ({"open": ("20-06",)}, "open='20-06'"),
        ({"open": ("20:00-25:00",)}, "open='20:00-25:00'"),
        ({"open": ("20:60-21:00",)}, "open='20:60-21:00'"),
        ({"open": ("20:00-24:01",)}, "open='20:00-24:01'"),
        ({"open": ("24:00-06:00",)}, "open='24:00-06:00'"),
        ({"open": ("08:00-12:00 13:00-17:00",)}, "open='08:00-12:00 13:00-17:00'"),
        ({"open": ("08:00-12:00,13:00-17:00",)}, "open='08:00-12:00,13:00-17:00'"),
        ({"open": ("٢٠:00-21:00",)}, "is no opening"),
        ({"open": (750,)}, "open=750"),
        ({"open": "Mon-Fri"}, "open='Mon-Fri' must be a list"),
        ({"maintenance": "2026-12-24"}, "maintenance='2026-12-24' must be a list"),
        ({"maintenance": ("2026-02-30",)}, "maintenance='2026-02-30' is no date"),
        ({"maintenance": ("24.12.2026",)}, "maintenance='24.12.2026' is no date"),
        ({"maintenance": ("2026-12-24..",)}, "maintenance='2026-12-24..' is no date"),
        ({"maintenance": ("2026-12-24..2026-12-25..2026-12-26",)}, "is no date"),
        ({"maintenance": ("2026-12-24..2026-12-23",)}, "ends before it begins"),
    ],
)
def test_nonsense_is_found_when_a_window_is_built(settings, says):
    with pytest.raises(InputError) as error:
        Window(**settings)
    assert says in str(error.value)
    assert len(str(error.value)) < 200


def test_a_window_without_openings_is_always_open():
    now = utc("2026-06-01T12:34")
    assert Window().is_open(now)
    assert Window().opens(now, WEEK) is now
    assert Window().closes(now) is None
    assert Window(open=("Mon-Fri", "Sat,Sun 00:00-12:00", "Sat,Sun 12:00-24:00")).closes(now) is None


def test_a_time_must_have_a_zone():
    for ask in (Window().is_open, Window().closes, lambda at: Window().opens(at, WEEK)):
        with pytest.raises(InputError, match="2026-06-01T00:00:00 must have a time zone"):
            ask(datetime(2026, 6, 1))


@pytest.mark.parametrize(
    ("openings", "at", "closes"),
    [
        (("Sat,Sun",), "2026-06-06T12:00", "2026-06-08T00:00"),
        (("20:00-24:00", "00:00-06:00"), "2026-06-01T21:00", "2026-06-02T06:00"),
        (("20:00-23:00", "22:00-02:00"), "2026-06-01T21:00", "2026-06-02T02:00"),
        (("10:00-18:00", "12:00-13:00"), "2026-06-01T12:30", "2026-06-01T18:00"),
        (("Mon-Sat", "Sun 00:00-23:59:59"), "2026-06-01T00:00", "2026-06-07T23:59:59"),
    ],
)
def test_adjacent_openings_are_one(openings, at, closes):
    assert Window(open=openings).closes(utc(at)) == utc(closes)


def test_what_is_closed_does_not_close():
    with pytest.raises(ValueError, match="closed at 2026-06-06T00:00"):
        Window(open=("Mon-Fri",)).closes(utc("2026-06-06T00:00"))


def test_an_end_counts_within_eight_days():
    always = Window(maintenance=("2026-06-09",))
    assert always.closes(utc("2026-06-01T00:00")) == utc("2026-06-09T00:00")
    assert always.closes(utc("2026-06-01T00:00") - TICK) is None


def test_an_opening_counts_within_the_horizon():
    window, now = Window(open=("Wed 08:00-09:00",)), utc("2026-06-01T08:00")
    assert window.opens(now, 2 * DAY) == utc("2026-06-03T08:00")
    assert window.opens(now, 2 * DAY - TICK) is None
    assert window.opens(utc("2026-06-03T09:00"), WEEK) == utc("2026-06-10T08:00")


def test_times_may_come_in_any_zone():
    window = Window("Asia/Tokyo", ("Mon 09:00-10:00",))
    at = datetime(2026, 5, 31, 14, 30, tzinfo=timezone(timedelta(hours=-10)))  # Monday 09:30 in Tokyo
    assert window.is_open(at)
    assert window.closes(at) == utc("2026-06-01T01:00")


@pytest.mark.parametrize(
    ("zone", "evening", "begins", "hours"),
    [
        ("Europe/Zurich", "2026-03-27", "2026-03-27T19:00", 10),
        ("Europe/Zurich", "2026-03-28", "2026-03-28T19:00", 9),
        ("Europe/Zurich", "2026-03-29", "2026-03-29T18:00", 10),
        ("Europe/Zurich", "2026-10-24", "2026-10-24T18:00", 11),
        ("Europe/Zurich", "2026-10-25", "2026-10-25T19:00", 10),
        ("America/New_York", "2026-03-07", "2026-03-08T01:00", 9),
        ("America/New_York", "2026-10-31", "2026-11-01T00:00", 11),
    ],
)
def test_a_night_is_as_long_as_the_clocks_make_it(zone, evening, begins, hours):
    window = Window(zone, ("20:00-06:00",))
    noon = datetime.fromisoformat(f"{evening}T12:00").replace(tzinfo=ZoneInfo(zone))
    assert window.opens(noon, DAY) == utc(begins)
    assert window.closes(utc(begins)) == utc(begins) + hours * HOUR


@pytest.mark.parametrize(
    ("zone", "opening", "at", "opens", "closes"),
    [  # Zurich leaves out 02:00-03:00 on 29 March and has it twice on 25 October
        ("Europe/Zurich", "02:30-03:15", "2026-03-28T12:00", "2026-03-29T01:00", "2026-03-29T01:15"),
        ("Europe/Zurich", "01:00-02:30", "2026-03-28T12:00", "2026-03-29T00:00", "2026-03-29T01:00"),
        ("Europe/Zurich", "02:15-02:45", "2026-03-28T12:00", "2026-03-30T00:15", "2026-03-30T00:45"),
        ("Europe/Zurich", "02:30-03:00", "2026-10-24T12:00", "2026-10-25T00:30", "2026-10-25T02:00"),
        ("Europe/Zurich", "01:00-02:30", "2026-10-24T12:00", "2026-10-24T23:00", "2026-10-25T00:30"),
        ("Europe/Zurich", "02:15-02:45", "2026-10-24T12:00", "2026-10-25T00:15", "2026-10-25T00:45"),
        ("America/New_York", "02:30-03:15", "2026-03-08T00:00", "2026-03-08T07:00", "2026-03-08T07:15"),
        ("America/New_York", "01:30-02:00", "2026-11-01T00:00", "2026-11-01T05:30", "2026-11-01T07:00"),
        # Cairo leaves out midnight, Lord Howe half an hour, and Apia has left out a day
        ("Africa/Cairo", "Fri", "2026-04-23T00:00", "2026-04-23T22:00", "2026-04-24T21:00"),
        ("Australia/Lord_Howe", "02:10-02:40", "2026-10-03T12:00", "2026-10-03T15:30", "2026-10-03T15:40"),
        ("Pacific/Apia", "Fri", "2011-12-24T12:00", "2012-01-05T10:00", "2012-01-06T10:00"),
    ],
)
def test_a_time_that_is_left_out_or_there_twice(zone, opening, at, opens, closes):
    window = Window(zone, (opening,))
    assert window.opens(utc(at), 14 * DAY) == utc(opens)
    assert window.closes(utc(opens)) == utc(closes)


def test_both_times_that_are_there_twice_can_be_asked_for():
    window, local = Window("Europe/Zurich", ("02:30-02:45",)), datetime(2026, 10, 25, 2, 40)
    assert window.is_open(local.replace(tzinfo=ZoneInfo("Europe/Zurich"), fold=0))
    assert not window.is_open(local.replace(tzinfo=ZoneInfo("Europe/Zurich"), fold=1))


def test_maintenance_cuts_an_opening():
    window = Window("Europe/Zurich", ("20:00-06:00",), ("2026-12-24..2026-12-25", "2026-12-27"))
    evening = utc("2026-12-23T19:00")  # 20:00 in Zurich
    assert window.closes(evening) == utc("2026-12-23T23:00")
    assert window.opens(utc("2026-12-23T23:00"), WEEK) == utc("2026-12-25T23:00")  # of the 25th, cut before
    assert window.closes(utc("2026-12-25T23:00")) == utc("2026-12-26T05:00")
    assert window.closes(utc("2026-12-26T19:00")) == utc("2026-12-26T23:00")
    assert window.opens(utc("2026-12-27T12:00"), WEEK) == utc("2026-12-27T23:00")


def test_maintenance_of_an_organisation_that_is_always_open():
    window = Window(maintenance=("2026-06-03", "2026-06-03..2026-06-04", "2026-06-05"))
    assert window.closes(utc("2026-06-01T12:00")) == utc("2026-06-03T00:00")
    assert window.opens(utc("2026-06-03T00:00"), WEEK) == utc("2026-06-06T00:00")


def test_maintenance_cuts_openings_that_overlap():
    window = Window(open=("10:00-18:00", "12:00-13:00", "Mon-Fri 12:00-14:00"), maintenance=("2026-06-01",))
    assert not window.is_open(utc("2026-06-01T12:30"))
    assert window.opens(utc("2026-06-01T12:30"), WEEK) == utc("2026-06-02T10:00")


@pytest.mark.parametrize("openings", [(), ("Mon-Fri 20:00-06:00",)])
def test_a_window_can_be_closed_for_ever(openings):
    window = Window("Europe/Zurich", openings, ("0001-01-01..9999-12-31",))
    assert not window.is_open(utc("2026-06-01T21:00"))
    assert window.opens(utc("2026-06-01T21:00"), 400 * DAY) is None


DAYTIME = {
    "basel": Window("Europe/Zurich", ("Mon-Fri 08:00-18:00",)),  # 06:00-16:00 in UTC
    "boston": Window("America/New_York", ("Mon-Fri 08:00-18:00",)),  # 12:00-22:00
    "tokyo": Window("Asia/Tokyo", ("Mon-Fri 08:00-18:00",)),  # 23:00-09:00
}


@pytest.mark.parametrize(
    ("names", "now", "quorum", "horizon", "expected"),
    [
        ("basel boston", "01T00:00", 1.0, DAY, ("01T12:00", "basel boston")),
        ("basel boston", "01T13:00", 1.0, DAY, ("01T13:00", "basel boston")),
        ("basel boston", "01T16:00", 1.0, DAY, ("02T12:00", "basel boston")),
        ("basel boston", "01T16:00", 0.5, DAY, ("02T12:00", "basel boston")),
        ("basel boston", "01T16:00", 0.5, 19 * HOUR, ("01T16:00", "boston")),
        ("basel boston", "01T16:00", 0.6, 19 * HOUR, None),
        ("basel boston", "01T00:00", 1.0, 12 * HOUR, ("01T12:00", "basel boston")),
        ("basel boston", "01T00:00", 1.0, 12 * HOUR - TICK, None),
        ("basel boston tokyo", "01T00:00", 2 / 3, WEEK, ("01T06:00", "basel tokyo")),
        ("basel boston tokyo", "01T09:00", 2 / 3, WEEK, ("01T12:00", "basel boston")),
        ("basel boston tokyo", "01T00:00", 1.0, WEEK, None),
        ("basel", "06T00:00", 0.0, DAY, None),  # nobody is no quorum
        ("", "06T00:00", 1.0, DAY, ("06T00:00", "")),
    ],
)
def test_who_is_open_together(names, now, quorum, horizon, expected):
    windows = {name: DAYTIME[name] for name in names.split()}
    found = together(windows, utc(f"2026-06-{now}"), quorum, horizon)
    if expected is None:
        assert found is None
    else:
        assert found == (utc(f"2026-06-{expected[0]}"), frozenset(expected[1].split()))


def test_who_closes_is_gone_when_another_opens():
    windows = {"a": Window(open=("08:00-12:00",)), "b": Window(open=("12:00-16:00",))}
    assert together(windows, utc("2026-06-01T00:00"), 1.0, WEEK) is None
    assert together(windows, utc("2026-06-01T00:00"), 0.5, WEEK) == (utc("2026-06-01T08:00"), frozenset("a"))


def test_others_are_waited_for_as_long_as_there_is_patience():
    """Maintenance of one does not hold up a quorum for days."""
    windows = {"a": Window(open=("20:00-06:00",)), "b": Window(open=("21:00-06:00",))}
    windows["c"] = Window(open=("20:00-06:00",), maintenance=("2026-06-01..2026-06-03",))
    noon = utc("2026-06-01T12:00")
    assert together(windows, noon, 0.5, WEEK) == (utc("2026-06-04T00:00"), frozenset("abc"))
    assert together(windows, noon, 0.5, WEEK, HOUR) == (utc("2026-06-01T21:00"), frozenset("ab"))
    assert together(windows, noon, 0.3, WEEK, HOUR / 2) == (utc("2026-06-01T20:00"), frozenset("a"))
    assert together(windows, noon, 1.0, WEEK, HOUR) == (utc("2026-06-04T00:00"), frozenset("abc"))


def test_a_quorum_is_not_missed_by_rounding():
    windows = {str(n): Window(maintenance=() if n < 11 else ("2026-06-01..2026-07-01",)) for n in range(20)}
    now = utc("2026-06-02T00:00")
    found = together(windows, now, 0.55, DAY)  # 0.55 * 20 > 11
    assert found is not None
    assert len(found[1]) == 11
    assert together(windows, now, 0.5501, DAY) is None


def test_alike():
    windows = {
        "zurich": Window("Europe/Zurich", ("Mon-Fri 20:00-06:00",)),  # Monday 19:00 in UTC
        "basel": Window("Europe/Zurich", ("Mon,Tue 20:00-06:00", "wed-fri 20:00-6:00"), ("2026-01-05",)),
        "boston": Window("America/New_York", ("Mon-Fri 20:00-06:00",)),  # Tuesday 01:00
        "tokyo": Window("Asia/Tokyo", ("Mon-Fri 20:00-06:00",)),  # Monday 11:00
        "auckland": Window("Pacific/Auckland", ("Mon 08:00-10:00",)),  # Sunday 19:00
        "oslo": Window("Europe/Oslo", ("Sun 20:00-06:00",)),  # still open on Monday 00:00
        "cloud": Window(),
        "bern": Window("Europe/Zurich", maintenance=("2026-01-05..2027-01-05",)),
    }
    expected = [["bern", "cloud"], ["oslo"], ["tokyo"], ["basel", "zurich"], ["boston"], ["auckland"]]
    assert alike(windows) == expected
    assert alike(dict(reversed(windows.items()))) == expected
    assert alike({}) == []


ZONES = [
    "UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana",
    "Africa/Cairo", "Pacific/Kiritimati",
]  # fmt: skip


@st.composite
def opening(draw) -> tuple[frozenset[int], int, int]:
    days = draw(st.frozensets(st.integers(0, 6), min_size=1))
    minutes = st.integers(0, 1439) | st.sampled_from([0, 60, 120, 150, 180, 1200])
    return days, draw(minutes), draw(minutes)


def spelled(rule: tuple[frozenset[int], int, int]) -> str:
    days, start, stop = rule
    hours = [f"{minute // 60:02}:{minute % 60:02}" for minute in (start, stop)]
    return f"{','.join(DAYS[day] for day in sorted(days))} {'-'.join(hours)}"


def naive(rules, away, wall: datetime) -> bool:
    """Whether the wall clock shows an hour of today's openings, or of yesterday's that run into today."""
    if wall.date() in away:
        return False
    minute, today = 60 * wall.hour + wall.minute, wall.weekday()
    yesterday = (today - 1) % 7
    for days, start, stop in rules:
        overnight = stop <= start
        if today in days and minute >= start and (overnight or minute < stop):
            return True
        if overnight and yesterday in days and minute < stop:
            return True
    return not rules


moments = st.one_of(
    st.datetimes(datetime(2026, 1, 15), datetime(2026, 12, 31)),
    *(
        st.datetimes(around - timedelta(days=2), around + timedelta(days=2))
        for around in (
            datetime(2026, 3, 8),
            datetime(2026, 3, 29),
            datetime(2026, 10, 25),
            datetime(2026, 11, 1),
        )
    ),
).map(lambda at: at.replace(tzinfo=UTC))
rules = st.lists(opening(), max_size=3)
absences = st.frozensets(st.integers(-3, 9), max_size=3)


def built(zone: str, rules, away: frozenset[date]) -> Window:
    return Window(zone, tuple(map(spelled, rules)), tuple(day.isoformat() for day in away))


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(ZONES), rules, absences, moments)
@example("Europe/Zurich", [(frozenset({6}), 150, 195)], frozenset(), utc("2026-03-29T01:10"))
def test_a_window_is_open_when_the_wall_clock_says_so(zone, rules, absences, at):
    wall = at.astimezone(ZoneInfo(zone))
    offsets = [(at + n * DAY).astimezone(ZoneInfo(zone)).utcoffset() for n in (-3, 3)]
    assume(
        offsets[0] <= offsets[1]
    )  # where an hour is left out the clock is right, where it is twice it is not
    away = frozenset(wall.date() + n * DAY for n in absences)
    assert built(zone, rules, away).is_open(at) == naive(rules, away, wall)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(ZONES), rules, absences, moments)
def test_openings_begin_and_end_where_they_say(zone, rules, absences, at):
    window = built(zone, rules, frozenset(at.date() + n * DAY for n in absences))
    opens = window.opens(at, 30 * DAY)
    assert opens is not None  # within three weeks there is a day without maintenance
    assert window.is_open(opens)
    if window.is_open(at):
        assert opens is at
    else:
        assert opens > at
        assert not window.is_open(opens - TICK)
        assert window.opens(at, opens - at) == opens
        assert window.opens(at, opens - at - TICK) is None
        with pytest.raises(ValueError, match="closed"):
            window.closes(at)
    closes = window.closes(opens)
    if closes is None:
        assert window.is_open(opens + 8 * DAY)
    else:
        assert opens < closes <= opens + 8 * DAY
        assert window.is_open(closes - TICK)
        assert not window.is_open(closes)
        assert window.is_open(opens + (closes - opens) / 2)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(ZONES), rules), min_size=1, max_size=4), moments, st.floats(0, 1))
def test_together_is_the_best_of_all_times(sites, at, quorum):
    windows = {str(n): built(zone, rules, frozenset()) for n, (zone, rules) in enumerate(sites)}
    minutes = [at, *(at.replace(minute=0, second=0, microsecond=0) + n * HOUR / 2 for n in range(3, 5 * 48))]
    counts = {when: sum(window.is_open(when) for window in windows.values()) for when in minutes[::5]}
    found = together(windows, at, quorum, minutes[-1] - at)
    if found is None:
        assert all(count < max(1, quorum * len(sites)) for count in counts.values())
    else:
        when, present = found
        assert present == {name for name, window in windows.items() if window.is_open(when)}
        assert len(present) >= max(1, quorum * len(sites) - 1e-9)
        assert all(
            count <= len(present) if t >= when else count < len(present) for t, count in counts.items()
        )
