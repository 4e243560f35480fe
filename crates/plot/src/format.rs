//! Numbers as text: short ones with suffixes, and formats in the way of gnuplot.

use std::str::FromStr;

use crate::error::PlotError;

/// Suffixes of powers of 1000, from 10^-24 on.
static SUFFIXES: [&str; 17] = [
    "y", "z", "a", "f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y",
];
const NO_SUFFIX: i32 = 8;
const MAX_WIDTH: usize = 32;
const MAX_PRECISION: usize = 17;

/// A format of numbers: the part of gnuplot's `set format` that fits on an axis.
///
/// A text with one conversion: `%`, then flags (`+`, `-`, `0`, space), a width up to 32, a precision up to 17, and one of
/// these letters. `%%` is a percent sign.
///
/// | Letter | Number | 1234.5 |
/// |---|---|---|
/// | `d`, `i` | rounded | 1234 |
/// | `f` | decimal | 1234.500000 |
/// | `e` | with exponent | 1.234500e+03 |
/// | `g` | the shorter one of `f` and `e` | 1234.5 |
/// | `s` | the part before `%c` | 1.2345 |
///
/// `%c`, after the conversion, is the suffix of the power of 1000: `%.1s%c` writes 1234.5 as `1.2k`, and `%.0f%c` too.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberFormat {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Number(Conversion),
    Suffix,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Conversion {
    plus: bool,
    space: bool,
    left: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    letter: char,
}

impl FromStr for NumberFormat {
    type Err = PlotError;

    fn from_str(format: &str) -> Result<Self, PlotError> {
        let rejected = |reason| PlotError::NumberFormat {
            format: format.chars().take(80).collect(),
            reason,
        };
        if format.chars().nth(80).is_some() {
            return Err(rejected("it has more than 80 characters"));
        }
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut characters = format.chars().peekable();
        while let Some(character) = characters.next() {
            if character != '%' || characters.next_if_eq(&'%').is_some() {
                text.push(character);
                continue;
            }
            let mut conversion = Conversion::default();
            while let Some(flag) = characters.next_if(|flag| "+-0 ".contains(*flag)) {
                match flag {
                    '+' => conversion.plus = true,
                    '-' => conversion.left = true,
                    '0' => conversion.zeros = true,
                    _ => conversion.space = true,
                }
            }
            let mut number = |max, reason| {
                let mut number = 0;
                while let Some(digit) = characters.peek().and_then(|character| character.to_digit(10)) {
                    characters.next();
                    number = number * 10 + digit as usize;
                    if number > max {
                        return Err(rejected(reason));
                    }
                }
                Ok((number, characters.peek().copied()))
            };
            let (width, next) = number(MAX_WIDTH, "its width is larger than 32")?;
            conversion.width = width;
            if next == Some('.') {
                characters.next();
                let mut precision = 0;
                while let Some(digit) = characters.peek().and_then(|character| character.to_digit(10)) {
                    characters.next();
                    precision = precision * 10 + digit as usize;
                    if precision > MAX_PRECISION {
                        return Err(rejected("its precision is larger than 17"));
                    }
                }
                conversion.precision = Some(precision);
            }
            conversion.letter = characters.next().ok_or_else(|| rejected("it ends after `%`"))?;
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(match conversion.letter {
                'c' => Part::Suffix,
                'd' | 'i' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 's' => Part::Number(conversion),
                _ => return Err(rejected("its conversion is none of d, i, f, e, g, s and c")),
            });
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        match parts
            .iter()
            .filter(|part| matches!(part, Part::Number(_)))
            .count()
        {
            1 => Ok(Self { parts }),
            0 => Err(rejected("it has no number, for example `%.2f`")),
            _ => Err(rejected("it has more than one number")),
        }
    }
}

impl NumberFormat {
    pub(crate) fn format(&self, value: f64) -> String {
        let scaled = self.parts.iter().any(|part| match part {
            Part::Suffix => true,
            Part::Number(conversion) => conversion.letter == 's',
            Part::Text(_) => false,
        });
        let power = if scaled { thousands(value) } else { 0 };
        let number = value / 1000_f64.powi(power);
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Number(conversion) => text.push_str(&conversion.format(number)),
                Part::Suffix => text.push_str(suffix(power)),
            }
        }
        text
    }
}

impl Conversion {
    fn format(&self, value: f64) -> String {
        let magnitude = value.abs();
        let precision = self.precision.unwrap_or(6);
        let mut digits = match self.letter {
            'd' | 'i' => format!("{magnitude:.0}"),
            'e' | 'E' => exponential(magnitude, precision),
            'g' | 'G' | 's' if self.precision.is_none() || self.letter != 's' => {
                general(magnitude, precision.max(1))
            }
            _ => format!("{magnitude:.precision$}"),
        };
        if self.letter.is_ascii_uppercase() {
            digits = digits.to_uppercase();
        }
        // No zero has a sign, nor a number that is rounded to 0.
        let zero = !digits.chars().any(|digit| ('1'..='9').contains(&digit)) && value.is_finite();
        let sign = match () {
            () if value < 0.0 && !zero => "-",
            () if self.plus => "+",
            () if self.space => " ",
            () => "",
        };
        let missing = self.width.saturating_sub(sign.len() + digits.chars().count());
        if self.left {
            format!("{sign}{digits}{}", " ".repeat(missing))
        } else if self.zeros {
            format!("{sign}{}{digits}", "0".repeat(missing))
        } else {
            format!("{}{sign}{digits}", " ".repeat(missing))
        }
    }
}

/// C's `%e`: an exponent of at least two digits.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// C's `%g`: `precision` digits without zeros at the end.
fn general(value: f64, precision: usize) -> String {
    let rounded = format!("{value:.*e}", precision - 1);
    let exponent: i32 = rounded
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let precision = i32::try_from(precision).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= precision {
        let text = exponential(value, usize::try_from(precision - 1).unwrap_or(0));
        match text.split_once('e') {
            Some((mantissa, exponent)) => format!("{}e{exponent}", without_zeros(mantissa)),
            None => text,
        }
    } else {
        let decimals = usize::try_from(precision - 1 - exponent).unwrap_or(0);
        without_zeros(&format!("{value:.decimals$}")).to_owned()
    }
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// Returns the power of 1000 that leaves 1 to 999 before the point, within the suffixes; 0 for 0.
fn thousands(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a logarithm of f64 is some hundreds at most"
    )]
    let power = ((value.abs().log10() + 1e-9).floor() as i32).div_euclid(3);
    power.clamp(-NO_SUFFIX, NO_SUFFIX)
}

fn suffix(power: i32) -> &'static str {
    usize::try_from(power + NO_SUFFIX)
        .ok()
        .and_then(|index| SUFFIXES.get(index))
        .copied()
        .unwrap_or("")
}

/// Returns the number of decimals that tell multiples of `step` apart.
fn decimals(step: f64) -> usize {
    if !step.is_finite() || step <= 0.0 {
        return 0;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 12")]
    let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize;
    decimals
}

/// Returns a short text of a multiple of `step`: plain up to 9,999 and down to 0.001, then with a suffix, then with an
/// exponent. `largest` is the largest magnitude on the axis: all its numbers are plain, or none.
pub(crate) fn short(value: f64, step: f64, largest: f64) -> String {
    if value.abs() < step * 1e-6 {
        return "0".to_owned();
    }
    if largest < 10_000.0 && (largest >= 0.01 || step >= 0.001) {
        return format!("{value:.*}", decimals(step));
    }
    let power =
        thousands(if largest < 1.0 { largest } else { value }).max(if largest < 1.0 { -3 } else { 0 });
    let unit = 1000_f64.powi(power);
    let scaled = value / unit;
    if !(1e-15..1e18).contains(&largest) || scaled.abs() >= 10_000.0 || step / unit < 1e-9 {
        let text = format!("{value:.*e}", decimals(step / value.abs()).min(12));
        return match text.split_once('e') {
            Some((mantissa, exponent)) => format!("{}e{exponent}", without_zeros(mantissa)),
            None => text,
        };
    }
    format!(
        "{}{}",
        without_zeros(&format!("{scaled:.*}", decimals(step / unit))),
        suffix(power)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(format: &str, value: f64) -> String {
        format.parse::<NumberFormat>().unwrap().format(value)
    }

    #[test]
    fn formats_as_c_does() {
        assert_eq!(format("%.2f", 1234.567), "1234.57");
        assert_eq!(format("%.0f ms", 0.4), "0 ms");
        assert_eq!(format("%f", 1.5), "1.500000");
        assert_eq!(format("%+.1f", -1.25), "-1.2");
        assert_eq!(format("%.0f", -0.2), "0");
        assert_eq!(format("%08.2f|", -1.5), "-0001.50|");
        assert_eq!(format("%-6d|", 42.0), "42    |");
        assert_eq!(format("%6.1f%%", 42.0), "  42.0%");
        assert_eq!(format("%e", 1234.5), "1.234500e+03");
        assert_eq!(format("%.1E", 0.00012), "1.2E-04");
        assert_eq!(format("%g", 1234.5), "1234.5");
        assert_eq!(format("%g", 1e6), "1e+06");
        assert_eq!(format("%g", 0.0001), "0.0001");
        assert_eq!(format("%g", 0.00001), "1e-05");
        assert_eq!(format("%.3g", 999.9), "1e+03");
        assert_eq!(format("%g", f64::INFINITY), "inf");
    }

    #[test]
    fn scales_with_suffixes() {
        assert_eq!(format("%.1s%c", 1234.5), "1.2k");
        assert_eq!(format("%.0f %cB", 2e9), "2 GB");
        assert_eq!(format("%s%c", 1e6), "1M");
        assert_eq!(format("%.0s%c", 0.0), "0");
        assert_eq!(format("%.0s%cs", 0.002), "2ms");
        assert_eq!(format("%s%c", 1e300), "1e+276Y");
    }

    #[test]
    fn rejects_other_formats() {
        for format in [
            "", "text", "%", "%x", "%n", "%f %f", "%99f", "%.99f", "%c", "%1$s", "%*d",
        ] {
            assert!(format.parse::<NumberFormat>().is_err(), "{format}");
        }
    }

    #[test]
    fn short_numbers_are_distinct() {
        let all = |step: f64, count: i32, from: f64| -> Vec<String> {
            let largest = (from + step * f64::from(count - 1)).abs().max(from.abs());
            (0..count)
                .map(|index| short(from + step * f64::from(index), step, largest))
                .collect()
        };
        assert_eq!(all(0.5, 3, 0.0), ["0", "0.5", "1.0"]);
        assert_eq!(all(500.0, 3, 0.0), ["0", "500", "1000"]);
        assert_eq!(all(500_000.0, 4, 0.0), ["0", "500k", "1M", "1.5M"]);
        assert_eq!(all(5000.0, 3, -5000.0), ["-5000", "0", "5000"]);
        assert_eq!(all(0.000_002, 3, 0.0), ["0", "2µ", "4µ"]);
        assert_eq!(all(1e20, 3, 0.0), ["0", "1e20", "2e20"]);
        assert_eq!(all(1.0, 2, 1_000_000.0), ["1M", "1.000001M"]);
        assert_eq!(all(1e-30, 2, 1e-30), ["1e-30", "2e-30"]);
    }
}
