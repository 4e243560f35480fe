//! The parameters of a picture.
//!
//! | Parameter | Value | Default |
//! |---|---|---|
//! | `wxh` | width and height in pixels, 100 to 4,096 each | `1024x768` |
//! | `o` | for each sub-query, in the order of the `m`: `axis x1y2` puts it on the right axis; `with lines`, `points`, `linespoints`, `steps` or `filledcurves` is its style | left axis |
//! | `title`, `ylabel`, `y2label` | text | none |
//! | `yrange`, `y2range` | `[LOW:HIGH]`, each optional | of the values |
//! | `yformat`, `y2format` | as gnuplot's, one conversion: `%.2f`, `%.1s%c` | short numbers |
//! | `ylog`, `y2log` | logarithmic | linear |
//! | `key` | place of the legend, words of gnuplot: `out`, `left`, `center`, `top`, `bottom`, `horiz`, `box` | `right box` |
//! | `nokey` | no legend | |
//! | `style` | `line`, `linespoint`, `points`, `circles`, `dots`, `steps`, `stacked` | `linespoint` |
//! | `bgcolor`, `fgcolor` | `xRRGGBB` | `xFFFFFF`, dark grey |
//! | `theme` | `light`, `dark` (not in OpenTSDB) | `light` |
//!
//! `smooth`, `xformat` and other options of gnuplot in `o` are accepted and have no effect.
//!
//! Source: OpenTSDB 2.4, `GraphHandler.setPlotParams`, `Plot.writeGnuplotScript`.

use std::fmt::Display;

use oxtsdb_plot::{
    Axis, AxisSide, Color, Legend, LegendPlace, NumberFormat, Plot, Points, Position, Series, Size, Style,
    Theme, ValueScale,
};

use crate::http::error::HttpError;
use crate::http::parameters::Parameters;

/// The least width and height in pixels, as in OpenTSDB.
const MIN_PIXELS: u32 = 100;

const DEFAULT_SIZE: (u32, u32) = (1024, 768);

/// Most characters of a title and of a label.
const MAX_TEXT_CHARS: usize = 256;

/// The look of a picture.
#[derive(Clone, Debug)]
pub(super) struct GraphSettings {
    pub(super) size: Size,
    title: String,
    axes: [Axis; 2],
    legend: Legend,
    theme: Theme,
    /// Of each sub-query.
    sub_queries: Vec<(AxisSide, Style)>,
}

impl GraphSettings {
    /// The parameters of a picture with this number of sub-queries.
    ///
    /// # Errors
    ///
    /// 400: a parameter breaks its rule.
    pub(super) fn parse(parameters: &Parameters, sub_queries: usize) -> Result<Self, HttpError> {
        let style = match parameters.get("style") {
            Some(text) => style(text).ok_or_else(|| {
                invalid(
                    "style",
                    text,
                    "line, linespoint, points, circles, dots, steps or stacked",
                )
            })?,
            None => Style::LineAndPoints,
        };
        // Without effect, but OpenTSDB rejects other words too.
        if let Some(text) = parameters.get("smooth")
            && !SMOOTH.contains(&text)
        {
            return Err(invalid("smooth", text, SMOOTH.join(", ")));
        }
        Ok(Self {
            size: size(parameters)?,
            title: text(parameters, "title")?,
            axes: [axis(parameters, "y")?, axis(parameters, "y2")?],
            legend: legend(parameters)?,
            theme: theme(parameters)?,
            sub_queries: options(parameters, sub_queries, style)?,
        })
    }

    /// A series of a sub-query.
    pub(super) fn series<'a>(&self, query: usize, label: String, points: Points<'a>) -> Series<'a> {
        let (axis, style) = self.sub_queries.get(query).copied().unwrap_or_default();
        Series {
            axis,
            style,
            ..Series::new(label, points)
        }
    }

    pub(super) fn apply(self, plot: &mut Plot<'_>) {
        plot.title = self.title;
        plot.axes = self.axes;
        plot.legend = self.legend;
        plot.theme = self.theme;
    }
}

/// gnuplot's ways to smooth.
const SMOOTH: &[&str] = &[
    "unique",
    "frequency",
    "fnormal",
    "cumulative",
    "cnormal",
    "bins",
    "csplines",
    "acsplines",
    "mcsplines",
    "bezier",
    "sbezier",
    "unwrap",
    "zsort",
];

fn invalid(parameter: &str, value: &str, rule: impl Display) -> HttpError {
    let value: String = value.chars().take(80).collect();
    HttpError::bad_request(format!("Invalid parameter {parameter} (\"{value}\"): {rule}"))
}

/// `800x400`.
fn size(parameters: &Parameters) -> Result<Size, HttpError> {
    let Some(text) = parameters
        .get("wxh")
        .map(str::trim)
        .filter(|text| !text.is_empty())
    else {
        let (width, height) = DEFAULT_SIZE;
        return Size::new(width, height).map_err(|error| invalid("wxh", "", error));
    };
    let size: Size = text.parse().map_err(|error| invalid("wxh", text, error))?;
    if size.width() < MIN_PIXELS || size.height() < MIN_PIXELS {
        return Err(invalid(
            "wxh",
            text,
            format_args!("width and height are at least {MIN_PIXELS}"),
        ));
    }
    Ok(size)
}

/// The size of the picture of an error: as requested, but small enough to be drawn in passing.
pub(super) fn size_of_error(parameters: &Parameters) -> Option<Size> {
    let size = size(parameters).ok();
    let (width, height) = size.map_or(DEFAULT_SIZE, |size| (size.width(), size.height()));
    Size::new(width.min(1024), height.min(768)).ok()
}

fn text(parameters: &Parameters, name: &str) -> Result<String, HttpError> {
    let text = parameters.get(name).unwrap_or_default();
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(invalid(
            name,
            text,
            format_args!("it has more than {MAX_TEXT_CHARS} characters"),
        ));
    }
    Ok(text.to_owned())
}

/// `name` is `y` or `y2`.
fn axis(parameters: &Parameters, name: &str) -> Result<Axis, HttpError> {
    let (lower, upper) = range(parameters, &format!("{name}range"))?;
    let format = format!("{name}format");
    let format = parameters
        .get(&format)
        .filter(|text| !text.is_empty())
        .map(|text| {
            // OpenTSDB decodes it twice, so that its links have `%2525`.
            let parsed: Result<NumberFormat, _> = text.replace("%25", "%").parse();
            parsed.map_err(|error| invalid(&format, text, error))
        });
    Ok(Axis {
        label: text(parameters, &format!("{name}label"))?,
        scale: if parameters.has(&format!("{name}log")) {
            ValueScale::Logarithmic
        } else {
            ValueScale::Linear
        },
        lower,
        upper,
        format: format.transpose()?,
    })
}

/// `[0:100]`, `[:100]`, `[0:]`, `[:]`.
fn range(parameters: &Parameters, name: &str) -> Result<(Option<f64>, Option<f64>), HttpError> {
    let Some(text) = parameters.get(name).filter(|text| !text.is_empty()) else {
        return Ok((None, None));
    };
    let rule = || {
        invalid(
            name,
            text,
            "it is [LOW:HIGH], two numbers of which each may be missing",
        )
    };
    let (lower, upper) = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .and_then(|text| text.split_once(':'))
        .ok_or_else(rule)?;
    let bound = |text: &str| match text.trim().trim_matches('"') {
        "" | "*" => Ok(None),
        text => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(rule()),
        },
    };
    let (lower, upper) = (bound(lower)?, bound(upper)?);
    if matches!((lower, upper), (Some(lower), Some(upper)) if lower >= upper) {
        return Err(invalid(name, text, "its lower end is not below its upper end"));
    }
    Ok((lower, upper))
}

/// gnuplot's words: `out right top box`. Words of other settings of the legend have no effect.
fn legend(parameters: &Parameters) -> Result<Legend, HttpError> {
    let text = parameters.get("key").unwrap_or("right box");
    let words: Vec<&str> = text.split_whitespace().collect();
    if parameters.has("nokey") {
        return Ok(Legend {
            place: LegendPlace::Hidden,
            boxed: false,
        });
    }
    const WORDS: &[&str] = &["out", "left", "top", "center", "right", "horiz", "box", "bottom"];
    if let Some(wrong) = words.iter().find(|word| !WORDS.contains(*word)) {
        return Err(invalid(
            "key",
            text,
            format_args!("{wrong} is none of {}", WORDS.join(", ")),
        ));
    }
    let has = |word: &str| words.contains(&word);
    let place = match (has("out"), has("horiz")) {
        (true, true) if has("top") => LegendPlace::Top,
        (true, true) => LegendPlace::Bottom,
        (true, false) => LegendPlace::Right,
        (false, _) => LegendPlace::Inside(match (has("bottom"), has("left"), has("center")) {
            (true, true, _) => Position::BottomLeft,
            (true, false, true) => Position::Bottom,
            (true, false, false) => Position::BottomRight,
            (false, true, _) => Position::TopLeft,
            (false, false, true) => Position::Top,
            (false, false, false) => Position::TopRight,
        }),
    };
    Ok(Legend {
        place,
        boxed: has("box"),
    })
}

fn theme(parameters: &Parameters) -> Result<Theme, HttpError> {
    let theme = match parameters.get("theme") {
        None | Some("light") => Theme::light(),
        Some("dark") => Theme::dark(),
        Some(other) => return Err(invalid("theme", other, "light or dark")),
    };
    let color = |name: &str| {
        let text = parameters.get(name).filter(|text| !text.is_empty());
        text.map(|text| {
            color(text).ok_or_else(|| invalid(name, text, "six hexadecimal digits behind an x: xFFFFFF"))
        })
        .transpose()
    };
    Ok(Theme {
        background: color("bgcolor")?.unwrap_or(theme.background),
        foreground: color("fgcolor")?.unwrap_or(theme.foreground),
    })
}

/// `x12AB34`.
fn color(text: &str) -> Option<Color> {
    let digits = text.strip_prefix(['x', 'X'])?;
    let bytes = hex::decode(digits).ok()?;
    match bytes[..] {
        [red, green, blue] => Some(Color::rgb(red, green, blue)),
        _ => None,
    }
}

/// gnuplot's names of styles, and `stacked`.
fn style(word: &str) -> Option<Style> {
    Some(match word {
        "line" | "lines" => Style::Line,
        "linespoint" | "linespoints" => Style::LineAndPoints,
        "points" | "circles" | "dots" => Style::Points,
        "steps" => Style::Steps,
        "stacked" | "filledcurves" => Style::StackedArea,
        _ => return None,
    })
}

/// Axis and style of each sub-query.
fn options(
    parameters: &Parameters,
    sub_queries: usize,
    default: Style,
) -> Result<Vec<(AxisSide, Style)>, HttpError> {
    let options: Vec<&str> = parameters.all("o").collect();
    if options.is_empty() {
        return Ok(vec![(AxisSide::Left, default); sub_queries]);
    }
    if options.len() != sub_queries {
        return Err(HttpError::bad_request(format!(
            "{} `o' parameters, but {sub_queries} `m' parameters.",
            options.len()
        )));
    }
    let parsed = options.iter().map(|option| {
        let side = if option.contains("x1y2") {
            AxisSide::Right
        } else {
            AxisSide::Left
        };
        let mut words = option
            .split_whitespace()
            .skip_while(|word| !matches!(*word, "with" | "w"));
        (side, words.nth(1).and_then(style).unwrap_or(default))
    });
    Ok(parsed.collect())
}
