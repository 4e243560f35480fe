//! OpenTSDB's quirks as switches.
//!
//! The HTTP API enables all of them, so that existing dashboards show the same results. gRPC enables none unless the
//! request sets OpenTSDB compatibility.

/// The quirks that apply to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quirks {
    /// Before its first rate a series contributes the slope from the epoch to its first point, which is a tiny
    /// number: the sum of a rate of 10 and one that starts later is 10.000000036846027. For a counter this slope is
    /// a step like any other: if the first value is negative it is a wrap, and if resets produce no point, the first
    /// rate replaces the slope and is not returned. Without the quirk a series contributes from its first rate on.
    pub rates_begin_at_the_epoch: bool,
    /// A result is an integer only if the next value of every series of the group is an integer, including series
    /// that have not started: 1 and 2 of an integer series become 1.0 and 2.0 if a floating-point series starts
    /// later. Without the quirk the contributing values determine the type.
    pub floats_to_come_count: bool,
    /// A window over the whole range (`0all-sum`) excludes points at the end of the range, which other queries
    /// include: from 0 s to 20 s a point at 20 s is ignored.
    pub whole_range_excludes_end: bool,
    /// Calendar windows are counted from the first point of each series instead of a common origin: `2wc` windows of
    /// series that start in consecutive weeks never align, and `12hc` windows start at 1 and 13 o'clock after the
    /// change to summer time. Without the quirk windows follow the zone's calendar; see
    /// [`crate::function::calendar`].
    pub calendar_follows_each_series: bool,
    /// The hours to read for calendar windows are computed with months of 30 days and years of 365. For `1nc-sum` up
    /// to 10 February 2013 the window of February therefore ends with the 13th; with a fill policy it is missing
    /// unless it is the only window. Without the quirk every window has all its points.
    pub last_calendar_window_cut_short: bool,
    /// If the hours to read start inside a window, a fill policy adds an empty window there. It precedes the range
    /// and is not returned, but rates start from it: if resets produce no point, a negative first value is a reset
    /// since the epoch but not since a window of `nan`. Without the quirk the first window is the first that is read
    /// completely.
    pub filled_windows_begin_early: bool,
    /// With `explicitTags` one more hour is read, for series that start before or at its beginning. A point after the
    /// range can therefore turn integers into floating point, or add an empty element for a series without points in
    /// the range. Without the quirk the same hours are read as for other queries.
    pub explicit_tags_read_an_hour_more: bool,
    /// Wildcards with a star in the middle are anchored at neither end, and the texts between stars match in any
    /// order: `w*1*b` and `eb*0` match `web01`. Without the quirk they do not.
    pub loose_globs: bool,
    /// Two `literal_or` filters of one tag key merge: `host=a` and `host=b` select the series of both hosts. This
    /// applies to the key with the lowest UID; for another key only the last filter applies, and the earlier ones
    /// only require the key. Without the quirk all filters must match, so no series does.
    pub literals_of_a_key_add_up: bool,
    /// Estimated percentiles (`ep75r3`, `ep75r7`) use their estimator only if all values are integers, otherwise the
    /// estimator of `p75`: `ep75r7` of 100 and 200 is 175, of 100.0 and 200.0 it is 200. Without the quirk the type of
    /// the values does not matter.
    pub estimates_of_integers_only: bool,
    /// Series selected by TSUIDs are one group, whatever their filters group by: `host=*` with the TSUIDs of two hosts
    /// returns one result. Without the quirk it returns two.
    pub tsuids_are_one_group: bool,
    /// For series selected by TSUIDs, excluding filters and a lone star also match series without the tag: `dc=*`
    /// matches a series that has no `dc`. Without the quirk, and for series of a metric, every filter requires its
    /// key.
    pub filters_of_tsuids_pass_without_key: bool,
    /// Expressions are evaluated in rows over all their series: each has a value at every timestamp of any series. A
    /// series missing from an operand is 0, whatever the fill policy. A nested expression returns its next row
    /// whatever its timestamp, and the query fails when it has none left: `e + b` with `e` at 0 s and 10 s and `b` at
    /// 5 s uses the value of 10 s at 5 s.
    pub expressions_in_rows: bool,
    /// Expressions are evaluated over all points of the hours that are read and clipped to the range afterwards; only
    /// moving averages and the `highest` functions see the range alone. Functions that combine values by index
    /// therefore require the same number of values in these hours. Without the quirk series are clipped first.
    pub expressions_see_surroundings: bool,
    /// A joined series has the tags of one operand, which their names determine, and none if that operand does not
    /// contribute. Without the quirk it has the tags that all operands share.
    pub joined_tags_of_one_operand: bool,
    /// An alias drops the sign of the values: `alias(scale(m,-1),x)` is positive.
    pub aliases_are_absolute: bool,
    /// A moving average is 0 until its window is complete. Without the quirk it starts then.
    pub moving_averages_begin_with_zeros: bool,
    /// The `highest` functions identify a series by its index among the values at a timestamp: if the first of two
    /// series ends early, the second takes its place. Without the quirk each series is ranked by its own values.
    pub highest_by_place: bool,
    /// Names within double parentheses are ignored: `((a)) + b` is `b`.
    pub double_parentheses_hide_names: bool,
    /// Fractions in expressions are 4-byte floats: `0.123456789` is 0.12345679.
    pub fractions_of_four_bytes: bool,
    /// A series that has annotations and no points in the hours that are read does not contribute to tags and TSUIDs of
    /// its group if others have points, and gets no windows of a fill policy. Without the quirk a series has its names
    /// with and without points. OpenTSDB returns a group of such series without metric and tags (`"metric":""`), which no
    /// client can use and `vmctl` rejects; it always has its names here. Does not apply once results are emitted before
    /// the scan ends.
    pub series_without_points_have_no_names: bool,
    /// Annotations are ordered by the numbers of their begin: all in milliseconds come after all in seconds. Of global
    /// annotations only those are returned that also end in the range, by numbers of seconds: see
    /// [`crate::annotation::ends_within`]. Without the quirk annotations are in order of time.
    pub annotations_by_number: bool,
    /// The histograms of a row are taken in the order of their qualifiers, which differs from the order of time if some
    /// are in milliseconds, and two at one instant are both taken. Without the quirk they are taken in order of time,
    /// and of two at one instant the newer one.
    pub histograms_in_stored_order: bool,
    /// Histograms with one window for the whole range have results without points.
    pub histograms_of_whole_range_are_empty: bool,
    /// A result that is an integer literal, as of `a > 1 ? 1 : 0`, or a fraction literal, is an error.
    pub results_are_doubles_or_truths: bool,
    /// In expressions the sum, difference or product of a boolean and an integer literal, another boolean or null is an
    /// error, their quotient and remainder are 0: `(a > b) * 100` fails, `(a > b) * 100.0` does not, `(a > b) / 1` is 0.
    /// The negative of null is an error too. Without the quirk booleans are 1 and 0.
    pub booleans_are_no_integers: bool,
}

impl Quirks {
    /// All of OpenTSDB's quirks.
    pub const OPENTSDB: Self = Self::all(true);

    /// No quirks.
    pub const NONE: Self = Self::all(false);

    const fn all(on: bool) -> Self {
        Self {
            rates_begin_at_the_epoch: on,
            floats_to_come_count: on,
            whole_range_excludes_end: on,
            calendar_follows_each_series: on,
            last_calendar_window_cut_short: on,
            filled_windows_begin_early: on,
            explicit_tags_read_an_hour_more: on,
            loose_globs: on,
            literals_of_a_key_add_up: on,
            estimates_of_integers_only: on,
            tsuids_are_one_group: on,
            filters_of_tsuids_pass_without_key: on,
            expressions_in_rows: on,
            expressions_see_surroundings: on,
            joined_tags_of_one_operand: on,
            aliases_are_absolute: on,
            moving_averages_begin_with_zeros: on,
            highest_by_place: on,
            double_parentheses_hide_names: on,
            fractions_of_four_bytes: on,
            series_without_points_have_no_names: on,
            annotations_by_number: on,
            histograms_in_stored_order: on,
            histograms_of_whole_range_are_empty: on,
            results_are_doubles_or_truths: on,
            booleans_are_no_integers: on,
        }
    }
}
