use super::*;
use crate::language::time::{find_zone, parse_time};

fn windows(count: i64, unit: CalendarUnit, zone: &str, counting: Counting) -> CalendarWindows {
    let zone = find_zone(zone).unwrap();
    CalendarWindows::new(CalendarInterval { count, unit, zone }, counting)
}

fn at(text: &str, zone: &str) -> i64 {
    parse_time(text, 0, &find_zone(zone).unwrap()).unwrap()
}

/// The starts of the window that holds an instant and of later windows, on the wall clock.
fn starts(windows: &CalendarWindows, text: &str, zone: &str, count: usize) -> Vec<String> {
    let first = windows.floor(at(text, zone));
    std::iter::successors(Some(first), |start| Some(windows.next(*start)))
        .take(count)
        .map(|start| {
            windows
                .local(start)
                .unwrap()
                .strftime("%Y/%m/%d %H:%M")
                .to_string()
        })
        .collect()
}

use CalendarUnit::{Days, Hours, Milliseconds, Minutes, Months, Seconds, Weeks, Years};
use Counting::{FromOrigin, FromSeries};

#[test]
fn days_have_the_length_that_the_clocks_give_them() {
    let zone = "America/New_York";
    for counting in [FromOrigin, FromSeries] {
        let days = windows(1, Days, zone, counting);
        let start = days.floor(at("2013/03/10-12:00", zone));
        assert_eq!(start, at("2013/03/10", zone));
        assert_eq!(days.next(start) - start, 23 * 3_600_000);
        let start = days.floor(at("2013/11/03-12:00", zone));
        assert_eq!(days.next(start) - start, 25 * 3_600_000);
        assert_eq!(days.ceil(start), start);
        assert_eq!(days.ceil(start + 1), days.next(start));
    }
}

#[test]
fn hours_are_counted_from_midnight_once_or_each_day() {
    let zone = "America/New_York";
    let from_series = windows(12, Hours, zone, FromSeries);
    assert_eq!(
        starts(&from_series, "2013/03/10 01:00", zone, 4),
        [
            "2013/03/10 00:00",
            "2013/03/10 13:00",
            "2013/03/11 01:00",
            "2013/03/11 13:00"
        ]
    );
    let from_origin = windows(12, Hours, zone, FromOrigin);
    assert_eq!(
        starts(&from_origin, "2013/03/10 01:00", zone, 4),
        [
            "2013/03/10 00:00",
            "2013/03/10 13:00",
            "2013/03/11 00:00",
            "2013/03/11 12:00"
        ]
    );
    let odd = windows(7, Hours, "UTC", FromOrigin);
    assert_eq!(
        starts(&odd, "2013/01/01 15:00", "UTC", 3),
        ["2013/01/01 14:00", "2013/01/01 21:00", "2013/01/02 00:00"],
        "the last of a day ends with it"
    );
    let odd = windows(7, Hours, "UTC", FromSeries);
    assert_eq!(
        starts(&odd, "2013/01/02 15:00", "UTC", 2),
        ["2013/01/02 11:00", "2013/01/02 18:00"],
        "from the first of the month"
    );
}

#[test]
fn zones_need_not_be_whole_hours_away() {
    for counting in [FromOrigin, FromSeries] {
        let hours = windows(1, Hours, "Asia/Kolkata", counting);
        assert_eq!(hours.floor(1_356_998_400_000), 1_356_998_400_000 - 1_800_000);
    }
    let minutes = windows(30, Minutes, "Asia/Kolkata", FromSeries);
    assert_eq!(minutes.floor(1_356_998_400_000), 1_356_998_400_000);
}

#[test]
fn parts_of_a_minute_begin_at_its_top() {
    let time = at("2013/01/01-10:59:59", "UTC") + 900;
    let floor = |count, unit| time - windows(count, unit, "UTC", FromSeries).floor(time);
    assert_eq!(floor(250, Milliseconds), 150);
    assert_eq!(floor(700, Milliseconds), 59_900 % 700);
    assert_eq!(floor(15, Seconds), 14_900);
    assert_eq!(floor(7, Seconds), 3_599_900 % 7000);
    assert_eq!(floor(20, Minutes), 1_199_900);
    assert_eq!(floor(7, Minutes), 39_599_900 % 420_000);
}

#[test]
fn weeks_begin_on_sunday() {
    for counting in [FromOrigin, FromSeries] {
        let weeks = windows(1, Weeks, "UTC", counting);
        assert_eq!(
            starts(&weeks, "2013/01/01", "UTC", 2),
            ["2012/12/30 00:00", "2013/01/06 00:00"]
        );
    }
    let (a, b) = ("2013/01/01", "2013/01/08");
    let two = windows(2, Weeks, "UTC", FromSeries);
    assert_eq!(
        starts(&two, a, "UTC", 2),
        ["2012/12/30 00:00", "2013/01/13 00:00"]
    );
    assert_eq!(
        starts(&two, b, "UTC", 2),
        ["2013/01/06 00:00", "2013/01/20 00:00"]
    );
    let two = windows(2, Weeks, "UTC", FromOrigin);
    assert_eq!(starts(&two, a, "UTC", 3)[1..], starts(&two, b, "UTC", 3)[..2]);
    // 20 May 2013 is a Monday.
    let three = windows(3, Weeks, "UTC", FromSeries);
    assert_eq!(
        starts(&three, "2013/05/20", "UTC", 2),
        ["2013/05/19 00:00", "2013/06/09 00:00"]
    );
}

#[test]
fn months_and_years_are_those_of_the_calendar() {
    let five = windows(5, Months, "UTC", FromSeries);
    assert_eq!(
        starts(&five, "2013/02/03", "UTC", 4),
        [
            "2013/01/01 00:00",
            "2013/06/01 00:00",
            "2013/11/01 00:00",
            "2014/04/01 00:00"
        ]
    );
    let five = windows(5, Months, "UTC", FromOrigin);
    assert_eq!(
        starts(&five, "2013/02/03", "UTC", 2),
        starts(&five, "2013/03/03", "UTC", 2)
    );
    for counting in [FromOrigin, FromSeries] {
        let quarters = windows(3, Months, "Europe/Berlin", counting);
        assert_eq!(
            starts(&quarters, "2013/02/03", "Europe/Berlin", 3),
            ["2013/01/01 00:00", "2013/04/01 00:00", "2013/07/01 00:00"]
        );
        let years = windows(1, Years, "UTC", counting);
        assert_eq!(
            starts(&years, "2013/02/03", "UTC", 2),
            ["2013/01/01 00:00", "2014/01/01 00:00"]
        );
    }
    let decade = windows(10, Years, "UTC", FromOrigin);
    assert_eq!(starts(&decade, "2013/02/03", "UTC", 1), ["2010/01/01 00:00"]);
    let several = windows(10, Days, "UTC", FromSeries);
    assert_eq!(starts(&several, "2013/01/25", "UTC", 1), ["2013/01/21 00:00"]);
}

#[test]
fn a_midnight_that_the_clocks_skip_is_the_first_instant_of_the_day() {
    let zone = "America/Sao_Paulo";
    for (counting, first, next_day) in [
        (FromOrigin, "2013/10/19 00:00", "2013/10/21 00:00"),
        (FromSeries, "2013/10/19 01:00", "2013/10/21 01:00"),
    ] {
        let days = windows(1, Days, zone, counting);
        assert_eq!(
            starts(&days, "2013/10/19", zone, 3),
            [first, "2013/10/20 01:00", next_day]
        );
    }
}

#[test]
fn days_are_late_after_one_without_midnight_to_the_end_of_the_month() {
    let zone = "America/Sao_Paulo";
    let first = |from: &str| starts(&windows(1, Days, zone, FromSeries), from, zone, 1);
    for (from, expected) in [
        ("2013/10/18", "2013/10/18 00:00"),
        ("2013/10/19", "2013/10/19 01:00"),
        // At midnight it is still the day before.
        ("2013/10/25", "2013/10/24 01:00"),
        ("2013/11/01", "2013/11/01 00:00"),
    ] {
        assert_eq!(first(from), [expected]);
    }
    // Of two midnights the first is meant.
    let weeks = windows(1, Weeks, "America/Havana", FromSeries);
    let start = weeks.floor(at("2012/10/28", "America/Havana"));
    assert_eq!(weeks.next(start), 1_352_001_600_000, "four hours behind UTC");
}

#[test]
fn many_weeks_are_late_after_a_sunday_without_midnight() {
    let zone = "America/Havana";
    for (count, from, first) in [
        (2, "2012/05/02", "2012/04/29 00:00"),
        (3, "2012/05/02", "2012/04/29 01:00"),
        (3, "2012/03/24", "2012/03/18 00:00"),
        (3, "2012/03/30", "2012/03/25 01:00"),
        (2, "2012/03/30", "2012/03/25 01:00"),
        (3, "2013/01/02", "2012/12/30 00:00"),
    ] {
        let weeks = windows(count, Weeks, zone, FromSeries);
        assert_eq!(
            starts(&weeks, from, zone, 1),
            [first],
            "{count} weeks from {from}"
        );
        let weeks = windows(count, Weeks, zone, FromOrigin);
        assert!(starts(&weeks, from, zone, 1)[0].ends_with("00:00"));
    }
}

/// In Samoa 2011-12-29 was followed by 2011-12-31.
#[test]
fn windows_that_begin_on_a_skipped_day_do_not_overlap() {
    let zone = "Pacific/Apia";
    for (count, unit, expected) in [
        (
            1,
            Days,
            [
                "2011/12/28",
                "2011/12/29",
                "2011/12/31",
                "2012/01/01",
                "2012/01/02",
            ],
        ),
        (
            2,
            Days,
            [
                "2011/12/28",
                "2011/12/31",
                "2012/01/01",
                "2012/01/03",
                "2012/01/05",
            ],
        ),
    ] {
        let days = windows(count, unit, zone, FromOrigin);
        let expected = expected.map(|day| format!("{day} 00:00"));
        assert_eq!(starts(&days, "2011/12/28", zone, 5), expected, "{count} days");
        let mut start = days.floor(1_325_000_000_000);
        for _ in 0..9 {
            let next = days.next(start);
            assert_eq!(
                (days.floor(next - 1), days.floor(next)),
                (start, next),
                "{count} days"
            );
            start = next;
        }
    }
}

#[test]
fn windows_beyond_all_calendars_begin_at_the_end_of_time() {
    for unit in [Milliseconds, Hours, Days, Weeks, Months, Years] {
        for counting in [FromOrigin, FromSeries] {
            let huge = windows(i64::MAX / unit.nominal_ms(), unit, "UTC", counting);
            let start = huge.floor(1_356_998_400_000);
            assert!(start <= 1_356_998_400_000, "{unit:?} {counting:?}");
            assert!(huge.next(start) > 1_356_998_400_000, "{unit:?} {counting:?}");
            assert_eq!(huge.next(253_402_300_000_000), i64::MAX, "{unit:?} {counting:?}");
        }
    }
}

proptest::proptest! {
    #[test]
    fn windows_follow_each_other(
        count in 1_i64..40,
        unit in 0_usize..8,
        zone in 0_usize..7,
        time_ms in 0_i64..4_000_000_000_000,
        from_series: bool,
    ) {
        let unit = [Milliseconds, Seconds, Minutes, Hours, Days, Weeks, Months, Years][unit];
        let zone = [
            "UTC",
            "America/New_York",
            "Asia/Kolkata",
            "America/Havana",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "Pacific/Kwajalein",
        ][zone];
        let counting = if from_series { FromSeries } else { FromOrigin };
        let windows = windows(count, unit, zone, counting);
        let start = windows.floor(time_ms);
        let next = windows.next(start);
        let skipped_ms = if zone.starts_with("Pacific") { 86_400_000 } else { 3_600_000 };
        let late_ms = if from_series { skipped_ms } else { 0 };
        proptest::prop_assert!(start <= time_ms + late_ms && time_ms < next, "{start} {time_ms} {next}");
        if !from_series {
            proptest::prop_assert_eq!(windows.floor(start), start);
            proptest::prop_assert_eq!(windows.floor(next - 1), start);
            proptest::prop_assert_eq!(windows.floor(next), next);
        }
    }
}
