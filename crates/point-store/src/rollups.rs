//! Rollups in a point store: each value of a rollup table is a point, at an instant that is its place in the table.
//!
//! ```text
//!   cell     row key: series, base time │ qualifier: aggregation id, offset 12 bits, flags │ value
//!   instant  aggregation id 7 bits │ hour of the base time 21 bits │ offset 12 bits          in milliseconds
//! ```
//!
//! The values of one aggregate are neighbours for years, so that a query reads only the values that it needs. Tables,
//! intervals and row spans are a setting; the instants depend on none of them, so stored values stay the same cells
//! whatever the setting becomes. Each table has a store of its own.

mod columns;

use oxtsdb_schema::{BaseTime, HOUR_SECONDS};

pub use self::columns::RollupColumns;
use crate::TimeRange;

const OFFSET_BITS: u32 = 12;
const HOUR_BITS: u32 = 21;

/// The largest offset of a qualifier.
const MAX_OFFSET: u16 = (1 << OFFSET_BITS) - 1;

/// Aggregation ids: the upper bit of the byte is reserved.
pub(crate) const IDS: u8 = 128;

/// The place of a value in a rollup table, apart from its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollupSlot {
    /// Aggregation id, less than [`IDS`].
    pub(crate) id: u8,
    /// Hours since the epoch of the row's base time.
    pub(crate) hour: u32,
    /// Intervals since the base time.
    pub(crate) offset: u16,
}

impl RollupSlot {
    /// The slot of a value in a row; `None` for ids and offsets that no qualifier has.
    pub(crate) const fn new(id: u8, base: BaseTime, offset: u16) -> Option<Self> {
        if id >= IDS || offset > MAX_OFFSET {
            return None;
        }
        let hour = base.seconds() / HOUR_SECONDS;
        Some(Self { id, hour, offset })
    }

    /// The instant by which the point store has the value.
    pub(crate) const fn time_ms(self) -> i64 {
        let place = (self.id as u64) << HOUR_BITS | self.hour as u64;
        (place << OFFSET_BITS | self.offset as u64).cast_signed()
    }

    /// The slot of an instant of the point store.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked to the widths of the fields"
    )]
    pub(crate) const fn from_time_ms(time_ms: i64) -> Self {
        let place = time_ms.cast_unsigned();
        Self {
            id: (place >> (HOUR_BITS + OFFSET_BITS)) as u8,
            hour: (place >> OFFSET_BITS) as u32 & ((1 << HOUR_BITS) - 1),
            offset: place as u16 & MAX_OFFSET,
        }
    }

    /// The base time of the row.
    pub(crate) const fn base(self) -> BaseTime {
        BaseTime::from_seconds(self.hour.saturating_mul(HOUR_SECONDS))
    }
}

/// The instants of an aggregate in the rows from one hour to another, both inclusive.
pub(crate) const fn slots_of_hours(id: u8, first: u32, last: u32) -> TimeRange {
    let first = RollupSlot {
        id,
        hour: first,
        offset: 0,
    };
    let last = RollupSlot {
        id,
        hour: last,
        offset: MAX_OFFSET,
    };
    TimeRange {
        first_ms: first.time_ms(),
        last_ms: last.time_ms(),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::timestamp::MAX_MILLIS;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_round_trip_in_the_order_of_cells(
            a in (0..IDS, 0..=BaseTime::MAX.seconds(), 0..=MAX_OFFSET),
            b in (0..IDS, 0..=BaseTime::MAX.seconds(), 0..=MAX_OFFSET),
        ) {
            let slot = |(id, seconds, offset)| RollupSlot::new(id, BaseTime::from_seconds(seconds), offset).unwrap();
            let (one, other) = (slot(a), slot(b));
            prop_assert_eq!(RollupSlot::from_time_ms(one.time_ms()), one);
            prop_assert_eq!(one.base(), BaseTime::from_seconds(a.1));
            prop_assert!((0..=MAX_MILLIS).contains(&one.time_ms()));
            let order = |slot: RollupSlot| (slot.id, slot.hour, slot.offset);
            prop_assert_eq!(one.time_ms().cmp(&other.time_ms()), order(one).cmp(&order(other)));
            prop_assert!(slots_of_hours(one.id, one.hour, one.hour).contains(one.time_ms()));
        }
    }

    #[test]
    fn no_slot_for_what_no_qualifier_has() {
        assert_eq!(RollupSlot::new(128, BaseTime::MIN, 0), None);
        assert_eq!(RollupSlot::new(0, BaseTime::MIN, 4096), None);
        let last = RollupSlot::new(127, BaseTime::MAX, MAX_OFFSET).unwrap();
        assert!(last.time_ms() <= MAX_MILLIS);
    }
}
