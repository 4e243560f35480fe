//! OpenTSDB's oddities that nobody would design today, as switches.
//!
//! HTTP has them all, so that no dashboard moves; gRPC has none unless the request asks for OpenTSDB's
//! answers.

/// Which oddities an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quirks {
    /// Until a series has its first rate, it takes part in its group with the slope from the epoch
    /// to its first point, which is a tiny number: the sum of a rate of 10 and one that begins later
    /// is 10.000000036846027. For a counter that slope is a step up or down as any other: of one that
    /// begins below zero it is a wrap, and where steps down give no point, its first rate takes the place
    /// of the slope and is not shown. Without it the series takes part from its first rate on.
    pub rates_begin_at_the_epoch: bool,
    /// A result is an integer only if the next value of each series of the group is one as well, also of
    /// those that have not begun: 1 and 2 of a series of integers are 1.0 and 2.0 as long as another one,
    /// of floating point, begins later. Without it what contributes to a result says what it is.
    pub floats_to_come_count: bool,
    /// One value over the whole range (`0all-sum`) leaves out points at the very end of the range,
    /// which all other queries include: from 0 s to 20 s a point at 20 s does not count.
    pub whole_range_excludes_end: bool,
    /// Calendar windows are counted from the first point of each series and not from one origin for
    /// all: `2wc` windows of a series that begins in one week and of a series that begins in the next
    /// never have the same starts, and `12hc` windows begin at 1 and 13 o'clock once the clocks were put
    /// on. Without it the windows are those of the zone's calendar; see [`crate::function::calendar`].
    pub calendar_follows_each_series: bool,
    /// What is read for calendar windows is reckoned with months of 30 days and years of 365. So of
    /// `1nc-sum` up to 10 February 2013 the window of February ends with the 13th, and with a fill policy
    /// it is not there at all, unless it is the only one. Without it every window has all its points.
    pub last_calendar_window_cut_short: bool,
    /// With a fill policy there is one more window, without any points, where what is read begins inside a
    /// window. It is in front of the range and not shown, but rates start from it: where steps down give no point,
    /// a first value below zero is one from the epoch, and none from a window of `nan`. Without it the first
    /// window is the first that is read whole.
    pub filled_windows_begin_early: bool,
    /// Where all tag keys of the wanted series are named (`explicitTags`), one more hour is read, of series that
    /// begin before it or with it. So a point behind the range makes an integer floating point, or gives a series
    /// without points in it an empty element. Without it the same is read as else.
    pub explicit_tags_read_an_hour_more: bool,
    /// Wildcards hold neither end when the star is in the middle, and do not look at the order of what
    /// is between stars: `w*1*b` and `eb*0` match `web01`. Without it they do not.
    pub loose_globs: bool,
    /// Two `literal_or` filters of one tag key are one with the values of both: `host=a` and `host=b`
    /// together give the series of both hosts. That is so for the key with the lowest UID; of those of
    /// another key that come before another filter of it nothing is left but that the key has to be there.
    /// Without it all filters must pass, and no series does.
    pub literals_of_a_key_add_up: bool,
    /// Estimated percentiles (`ep75r3`, `ep75r7`) are estimated so only where all values are integers,
    /// and like `p75` elsewhere: of 100 and 200 `ep75r7` is 175, of 100.0 and 200.0 it is 200. Without
    /// it the kind of number does not matter.
    pub estimates_of_integers_only: bool,
    /// Series that are asked for by TSUIDs are one group, whatever their filters say about grouping:
    /// `host=*` with the TSUIDs of two hosts gives one result. Without it, it gives two.
    pub tsuids_are_one_group: bool,
    /// Of series that are asked for by TSUIDs, filters that exclude values, and a star alone, take those
    /// without the tag, too: `dc=*` gives a series that has no `dc`. Without it, and for series of a metric,
    /// every filter wants its key to be there.
    pub filters_of_tsuids_pass_without_key: bool,
    /// Expressions are computed in rows of all their series: each has a value wherever one has. A series
    /// that an operand does not have counts as 0, whatever the fill policy; a nested expression gives
    /// its next row whatever the time is, and when it has no more there is no answer. So `e + b` with
    /// `e` at 0 s and 10 s and `b` at 5 s has the value of 10 s at 5 s.
    pub expressions_in_rows: bool,
    /// Expressions are computed with the points of the whole hours that are read, and cut to the range at the
    /// end; only moving averages and the highest series are those of the range alone. So where values are
    /// combined by place, series must have equally many in these hours. Without it series are cut first.
    pub expressions_see_surroundings: bool,
    /// A joined series has the tags of one of its operands, which one depends on their names, and none
    /// if that has no part in it. Without it, it has those that are the same in all.
    pub joined_tags_of_one_operand: bool,
    /// An alias takes the sign of the values: `alias(scale(m,-1),x)` is positive.
    pub aliases_are_absolute: bool,
    /// A moving average is 0 until its window is whole. Without it, it begins then.
    pub moving_averages_begin_with_zeros: bool,
    /// The highest series are judged by the place of their values among those of an instant: if the
    /// first of two series ends early, the second is taken for it. Without it each is judged by its own.
    pub highest_by_place: bool,
    /// What is within doubled parentheses has no names: `((a)) + b` is `b`.
    pub double_parentheses_hide_names: bool,
    /// Fractions in expressions have 4 bytes: `0.123456789` is 0.12345679.
    pub fractions_of_four_bytes: bool,
    /// A result that is a whole number, as of `a > 1 ? 1 : 0`, or a fraction as it was written, is an
    /// error.
    pub results_are_doubles_or_truths: bool,
}

impl Quirks {
    /// Answers as OpenTSDB's.
    pub const OPENTSDB: Self = Self::all(true);

    /// Answers as one would expect them.
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
            results_are_doubles_or_truths: on,
        }
    }
}
