//! The downsampling windows of a sub-query.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;

use crate::context::budget::{Budget, Held};
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::function::calendar::CalendarWindows;
use crate::function::downsample::{Downsample, Fill, FilledWindows, Interval, WindowLayout, Windows};
use crate::plan::hours::Hours;
use crate::spec::QuerySpec;

/// Memory of the start of a window.
const START_BYTES: u64 = size_of::<i64>() as u64;

/// Most windows that are generated inline, which takes less than 1 ms even for calendar windows.
const WINDOWS_INLINE: u64 = 4096;

/// The windows of a sub-query. The windows that a fill policy adds to every series are generated in advance,
/// after their number is known to fit into the budget; their memory is returned with them.
pub(super) async fn windows(
    query: &QuerySpec,
    downsample: &Downsample,
    hours: &Hours,
    budget: &Budget,
    compute: &ComputePool,
) -> Result<(Windows, Option<Held>), QueryError> {
    let (layout, nominal_ms) = match &downsample.interval {
        Interval::Fixed { length_ms } => (
            WindowLayout::Fixed {
                length_ms: *length_ms,
            },
            *length_ms,
        ),
        Interval::Calendar(interval) => (
            WindowLayout::Calendar(CalendarWindows::under(interval.clone(), query.quirks)),
            interval.nominal_ms(),
        ),
        Interval::WholeRange => {
            let excluded = i64::from(!query.quirks.whole_range_excludes_end);
            let layout = WindowLayout::Whole {
                start_ms: query.start_ms,
                stop_ms: query.end_ms.saturating_add(excluded),
            };
            return Ok((Windows::new(layout), None));
        }
    };
    let from_ms = layout.ceil(hours.start.millis());
    let value = match downsample.fill {
        Fill::None => {
            let windows = Windows {
                layout,
                from_ms,
                filled: None,
            };
            return Ok((windows, None));
        }
        Fill::Zero => 0.0,
        Fill::Nan | Fill::Null => f64::NAN,
    };
    let stop_ms = i64::try_from(hours.last_stop()).unwrap_or(i64::MAX / 1000);
    let stop_ms = layout.floor(stop_ms.saturating_mul(1000));
    let floor_ms = layout.floor(hours.start.millis());
    let first_ms = if query.quirks.filled_windows_begin_early {
        floor_ms
    } else {
        from_ms
    };
    // If it is the only window, it remains even if it is cut short.
    let is_one = matches!(layout, WindowLayout::Calendar(_)) && stop_ms == floor_ms;
    let stop_ms = if is_one { layout.next(stop_ms) } else { stop_ms };
    let range_ms = stop_ms.saturating_sub(first_ms).max(0);
    let about = (range_ms / nominal_ms).unsigned_abs();
    budget.limits().check(Resource::Points, about)?;
    let mut held = budget.hold(about.saturating_mul(START_BYTES))?;
    let make = {
        let layout = layout.clone();
        move || layout.starts(first_ms, stop_ms).collect::<Arc<[i64]>>()
    };
    let starts_ms = if about <= WINDOWS_INLINE {
        make()
    } else {
        compute.run(make).await?
    };
    let bytes = starts_ms.len() as u64 * START_BYTES;
    held.grow(bytes.saturating_sub(held.bytes()))?;
    let windows = Windows {
        layout,
        from_ms,
        filled: Some(FilledWindows { starts_ms, value }),
    };
    Ok((windows, Some(held)))
}
