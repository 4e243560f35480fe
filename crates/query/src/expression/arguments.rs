//! Texts and numbers after the operands of a call. Errors are OpenTSDB's messages.
//!
//! Source: OpenTSDB 2.4, `Scale`, `Alias`, `MovingAverage`, `HighestMax`, `TimeShift`.

use super::moving_average::Window;

/// Rejects too few or too many operands of a call that combines.
pub(super) fn check_operands(count: usize) -> Result<(), String> {
    if (2..=26).contains(&count) {
        return Ok(());
    }
    Err(format!("Must have 2 to 26 series, got {count} instead"))
}

/// The factor of `scale`.
pub(super) fn factor(texts: &[&str]) -> Result<f64, String> {
    let text = texts.first().ok_or("Missing scaling factor")?;
    if !text.contains(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
        || text.contains(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
    {
        return Err("Unparseable scale factor value: 0.0".to_owned());
    }
    text.parse()
        .map_err(|_| "Invalid parameter, must be an integer or floating point".to_owned())
}

/// The text of `alias`.
pub(super) fn alias(texts: &[&str]) -> Result<String, String> {
    if texts.is_empty() {
        return Err("Missing the alias".to_owned());
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

/// The window of `movingAverage`.
pub(super) fn window(texts: &[&str]) -> Result<Window, String> {
    let text = texts
        .first()
        .ok_or_else(|| "Missing moving average window size".to_owned())?;
    let window = if is_digits(text) {
        let count = integer(text).ok_or_else(|| "Invalid parameter, must be an integer".to_owned())?;
        Window::Values(count as usize)
    } else if text.starts_with('\'') && text.ends_with('\'') {
        Window::Millis(millis(text)?)
    } else {
        return Err(format!("Unparseable window size: {text}"));
    };
    if matches!(window, Window::Values(0) | Window::Millis(0)) {
        return Err("Moving average window must be an integer greater than zero".to_owned());
    }
    Ok(window)
}

/// `'5min'`, with its quotes.
fn millis(quoted: &str) -> Result<i64, String> {
    let text = quoted.trim_start_matches('\'');
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 || quoted.len() != text.len() + 1 {
        return Err(format!("Invalid moving window parameter: {quoted}"));
    }
    let (count, unit) = text.split_at(digits);
    let count = integer(count).ok_or_else(|| format!("Unable to parse moving window parameter: {quoted}"))?;
    let unit = unit.strip_suffix('\'').unwrap_or(unit);
    let seconds = match unit {
        "day" | "d" => 86_400,
        "hr" | "hour" | "h" => 3600,
        "min" | "m" => 60,
        "sec" | "s" => 1,
        unit => return Err(format!("Unknown time unit={unit} in window={quoted}")),
    };
    Ok(i64::from(count) * seconds * 1000)
}

/// The number of series of `highestMax` and `highestCurrent`.
pub(super) fn series_count(texts: &[&str]) -> Result<usize, String> {
    let text = texts
        .first()
        .ok_or_else(|| "Need aggregation window for moving average".to_owned())?;
    if !is_digits(text) {
        return Err(format!("Unparseable top n value: {text}"));
    }
    let count = integer(text).ok_or_else(|| "Invalid parameter, must be an integer".to_owned())?;
    if count == 0 {
        return Err("Top n value must be greater than zero: 0".to_owned());
    }
    Ok(count as usize)
}

/// The error of `shift`: OpenTSDB takes the closing quote for a part of the unit, and has no such unit.
pub(super) fn shift(texts: &[&str]) -> String {
    let Some(text) = texts.first() else {
        return "Need amount of timeshift to perform timeshift".to_owned();
    };
    if !(text.starts_with('\'') && text.ends_with('\'')) {
        return "Invalid timeshift parameter: eg '10min'".to_owned();
    }
    let unit = text.get(1..).unwrap_or_default();
    let behind = unit.trim_start_matches(|c: char| c.is_ascii_digit());
    if behind.len() == unit.len() {
        return format!("Invalid Parameter: {text}");
    }
    format!("unknown time unit={behind}")
}
