//! Texts and numbers behind the operands of a call.
//!
//! Source: OpenTSDB 2.4, `Scale`, `Alias`, `MovingAverage`, `HighestMax`, `TimeShift`.

use super::super::function::Function;
use super::super::highest::Measure;
use super::super::moving_average::Window;
use super::{CallError, CallFunction};

/// The function that a call means, or `None` for those that combine.
pub(super) fn function(of: CallFunction, texts: &[&str]) -> Result<Option<Function>, CallError> {
    Ok(Some(match of {
        CallFunction::Scale => Function::Scale(factor(texts)?),
        CallFunction::Absolute => Function::Absolute,
        CallFunction::Alias => Function::Alias(alias(texts)?),
        CallFunction::MovingAverage => Function::MovingAverage(window(texts)?),
        CallFunction::Highest(measure) => highest(measure, texts)?,
        CallFunction::Combine(_) => return Ok(None),
        CallFunction::Shift => return Err(shift(texts)),
    }))
}

/// Refuses fewer or more operands than can be combined.
pub(super) fn check_operands(count: usize) -> Result<(), CallError> {
    if (2..=26).contains(&count) {
        return Ok(());
    }
    Err(bad(format!("Must have 2 to 26 series, got {count} instead")))
}

fn bad(message: impl Into<String>) -> CallError {
    CallError::Argument(message.into())
}

fn factor(texts: &[&str]) -> Result<f64, CallError> {
    let text = texts.first().ok_or_else(|| bad("Missing scaling factor"))?;
    if !text.contains(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
        || text.contains(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
    {
        return Err(bad("Unparseable scale factor value: 0.0"));
    }
    text.parse()
        .map_err(|_| bad("Invalid parameter, must be an integer or floating point"))
}

fn alias(texts: &[&str]) -> Result<String, CallError> {
    if texts.is_empty() {
        return Err(bad("Missing the alias"));
    }
    Ok(texts.join(","))
}

/// A whole number as Java's `Integer` holds it.
fn integer(text: &str) -> Option<u32> {
    text.parse::<i32>()
        .ok()
        .and_then(|number| u32::try_from(number).ok())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn window(texts: &[&str]) -> Result<Window, CallError> {
    let text = texts
        .first()
        .ok_or_else(|| bad("Missing moving average window size"))?;
    let window = if is_digits(text) {
        let count = integer(text).ok_or_else(|| bad("Invalid parameter, must be an integer"))?;
        Window::Values(count as usize)
    } else if text.starts_with('\'') && text.ends_with('\'') {
        Window::Millis(millis(text)?)
    } else {
        return Err(bad(format!("Unparseable window size: {text}")));
    };
    if matches!(window, Window::Values(0) | Window::Millis(0)) {
        return Err(bad("Moving average window must be an integer greater than zero"));
    }
    Ok(window)
}

/// `'5min'`, with its quotes.
fn millis(quoted: &str) -> Result<i64, CallError> {
    let text = quoted.trim_start_matches('\'');
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 || quoted.len() != text.len() + 1 {
        return Err(bad(format!("Invalid moving window parameter: {quoted}")));
    }
    let (count, unit) = text.split_at(digits);
    let count =
        integer(count).ok_or_else(|| bad(format!("Unable to parse moving window parameter: {quoted}")))?;
    let unit = unit.strip_suffix('\'').unwrap_or(unit);
    let seconds = match unit {
        "day" | "d" => 86_400,
        "hr" | "hour" | "h" => 3600,
        "min" | "m" => 60,
        "sec" | "s" => 1,
        unit => return Err(bad(format!("Unknown time unit={unit} in window={quoted}"))),
    };
    Ok(i64::from(count) * seconds * 1000)
}

fn highest(measure: Measure, texts: &[&str]) -> Result<Function, CallError> {
    let text = texts
        .first()
        .ok_or_else(|| bad("Need aggregation window for moving average"))?;
    if !is_digits(text) {
        return Err(bad(format!("Unparseable top n value: {text}")));
    }
    let count = integer(text).ok_or_else(|| bad("Invalid parameter, must be an integer"))?;
    if count == 0 {
        return Err(bad("Top n value must be greater than zero: 0"));
    }
    Ok(Function::Highest(measure, count as usize))
}

/// OpenTSDB takes the closing quote for a part of the unit, and knows no such unit.
fn shift(texts: &[&str]) -> CallError {
    let Some(text) = texts.first() else {
        return bad("Need amount of timeshift to perform timeshift");
    };
    if !(text.starts_with('\'') && text.ends_with('\'')) {
        return bad("Invalid timeshift parameter: eg '10min'");
    }
    let unit = text.get(1..).unwrap_or_default();
    let behind = unit.trim_start_matches(|c: char| c.is_ascii_digit());
    if behind.len() == unit.len() {
        return bad(format!("Invalid Parameter: {text}"));
    }
    bad(format!("unknown time unit={behind}"))
}
