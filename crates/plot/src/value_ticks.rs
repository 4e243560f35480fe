//! Ticks of a y axis, at 1, 2 or 5 times a power of ten.

use crate::axis::ValueScale;
use crate::format::{NumberFormat, short};
use crate::scale::Scale;

/// A labelled value of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueTick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// Returns the ticks of a scale, about `max` and at most one more, and moves its ends to ticks where they may move.
pub(crate) fn value_ticks(scale: &mut Scale, max: usize, format: Option<&NumberFormat>) -> Vec<ValueTick> {
    let max = max.clamp(2, 50);
    let decades = scale.upper.log10() - scale.lower.log10();
    match scale.kind {
        ValueScale::Logarithmic if decades >= 0.8 => logarithmic(scale, max, format),
        _ => linear(scale, max, format),
    }
}

fn linear(scale: &mut Scale, max: usize, format: Option<&NumberFormat>) -> Vec<ValueTick> {
    let step = human_step((scale.upper - scale.lower) / (max - 1) as f64);
    let log = scale.kind == ValueScale::Logarithmic;
    if scale.lower_moves {
        let moved = (scale.lower / step + 1e-9).floor() * step;
        // The lower end of a logarithmic axis stays above 0.
        if !log || moved > 0.0 {
            scale.lower = moved;
        }
    }
    if scale.upper_moves {
        scale.upper = (scale.upper / step - 1e-9).ceil() * step;
    }
    let first = (scale.lower / step - 1e-6).ceil();
    let last = (scale.upper / step + 1e-6).floor();
    let largest = scale.lower.abs().max(scale.upper.abs());
    let mut ticks: Vec<ValueTick> = Vec::new();
    for index in 0..=max * 3 {
        let multiple = first + index as f64;
        if multiple > last {
            break;
        }
        let value = multiple * step;
        let label = label(value, step, largest, format);
        ticks.push(ValueTick { value, label });
    }
    ticks
}

fn logarithmic(scale: &mut Scale, max: usize, format: Option<&NumberFormat>) -> Vec<ValueTick> {
    let exponents = |scale: &Scale| {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "logarithms of f64 are some hundreds at most"
        )]
        let exponents = (
            (scale.lower.log10() + 1e-9).floor() as i32,
            (scale.upper.log10() - 1e-9).ceil() as i32,
        );
        exponents
    };
    let (low, high) = exponents(scale);
    let decades = usize::try_from(high - low).unwrap_or(1).max(1);
    // Up to three ticks for each decade, or one for several decades.
    let factors: &[f64] = match max / decades {
        0..=1 => &[1.0],
        2 => &[1.0, 3.0],
        _ => &[1.0, 2.0, 5.0],
    };
    let stride = i32::try_from(decades.div_ceil(max)).unwrap_or(1).max(1);
    let values: Vec<f64> = (low.div_euclid(stride) * stride..=high + stride)
        .step_by(stride.unsigned_abs() as usize)
        .flat_map(|exponent| factors.iter().map(move |factor| factor * 10_f64.powi(exponent)))
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect();
    let (lower, upper) = (scale.lower * (1.0 + 1e-9), scale.upper * (1.0 - 1e-9));
    if scale.lower_moves
        && let Some(tick) = values.iter().rev().find(|value| **value <= lower)
    {
        scale.lower = *tick;
    }
    if scale.upper_moves
        && let Some(tick) = values.iter().find(|value| **value >= upper)
    {
        scale.upper = *tick;
    }
    let shown = scale.lower * (1.0 - 1e-9)..=scale.upper * (1.0 + 1e-9);
    let shown = values.into_iter().filter(|value| shown.contains(value));
    shown
        .map(|value| ValueTick {
            value,
            label: label(value, value, value, format),
        })
        .collect()
}

fn label(value: f64, step: f64, largest: f64, format: Option<&NumberFormat>) -> String {
    match format {
        Some(format) => format.format(value),
        None => short(value, step, largest),
    }
}

/// Returns the smallest of 1, 2 and 5 times a power of ten that is not below `least`.
fn human_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= least * (1.0 - 1e-9))
        .unwrap_or(10.0);
    // 10^-n is not exact, 1 / 10^n is rounded once.
    let step = factor * power;
    if step < 1.0 {
        1.0 / (1.0 / step).round()
    } else {
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Axis;
    use crate::scale::Extent;

    fn labels(axis: &Axis, lower: f64, upper: f64, max: usize) -> (Vec<String>, f64, f64) {
        let mut scale = Scale::new(axis, Some(Extent { lower, upper }));
        let ticks = value_ticks(&mut scale, max, None);
        (
            ticks.into_iter().map(|tick| tick.label).collect(),
            scale.lower,
            scale.upper,
        )
    }

    #[test]
    fn steps_are_one_two_or_five() {
        let axis = Axis::default();
        assert_eq!(
            labels(&axis, 3.0, 97.0, 6),
            (
                ["0", "20", "40", "60", "80", "100"].map(String::from).to_vec(),
                0.0,
                100.0
            )
        );
        assert_eq!(labels(&axis, -0.3, 0.9, 5).0, ["-0.5", "0", "0.5", "1.0"]);
        assert_eq!(
            labels(&axis, 100.1, 100.4, 5).0,
            ["100.1", "100.2", "100.3", "100.4"]
        );
    }

    #[test]
    fn set_ends_do_not_move() {
        let axis = Axis {
            lower: Some(3.0),
            upper: Some(97.0),
            ..Axis::default()
        };
        assert_eq!(
            labels(&axis, 0.0, 0.0, 6),
            (["20", "40", "60", "80"].map(String::from).to_vec(), 3.0, 97.0)
        );
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        let axis = Axis {
            scale: ValueScale::Logarithmic,
            ..Axis::default()
        };
        let (ticks, lower, upper) = labels(&axis, 0.5, 80_000.0, 8);
        assert_eq!(ticks, ["0.1", "1", "10", "100", "1000", "10k", "100k"]);
        assert_eq!((lower, upper), (0.1, 100_000.0));
        assert_eq!(labels(&axis, 1.5, 30.0, 8).0, ["1", "2", "5", "10", "20", "50"]);
        assert!(labels(&axis, 1e-300, 1e300, 8).0.len() <= 9);
        assert_eq!(
            labels(&axis, 40.0, 50.0, 6).0,
            ["40", "42", "44", "46", "48", "50"]
        );
    }

    #[test]
    fn extremes_have_few_ticks() {
        for (lower, upper) in [
            (-1e300, 1e300),
            (1e-308, 1e300),
            (1e15, 1e15 + 1.0),
            (5e-324, 1e-323),
            (1.0, 1.0 + 1e-15),
        ] {
            let (ticks, ..) = labels(&Axis::default(), lower, upper, 6);
            assert!((1..=10).contains(&ticks.len()), "{lower} {upper}: {ticks:?}");
        }
    }
}
