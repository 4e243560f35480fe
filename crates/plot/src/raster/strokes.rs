//! Lines as polygons: a quadrilateral for each segment.
//!
//! Quadrilaterals of a gentle bend share an edge, so that no pixel is covered twice; at a sharp bend they overlap, and a
//! disc makes the corner round.

use super::mask::Mask;
use crate::geometry::{Rect, Spot};

/// Segments shorter than this have no direction worth drawing.
const MIN_LENGTH: f64 = 0.02;

/// Adds a line to the mask. A run of one place, or of equal ones, is a dot.
pub(super) fn stroke_run(mask: &mut Mask, run: &[Spot], width: f64, dashes: &[f64]) {
    let mut spots: Vec<Spot> = Vec::with_capacity(run.len());
    for spot in run {
        let far = spots
            .last()
            .is_none_or(|last| (spot.x - last.x).hypot(spot.y - last.y) > MIN_LENGTH);
        if far {
            spots.push(*spot);
        }
    }
    match spots.as_slice() {
        [] => {}
        [only] => mask.disc(*only, width.max(2.0) / 2.0),
        spots if dashes.is_empty() => {
            columns(mask, spots, width);
            // Round ends, as in SVG.
            for end in [spots.first(), spots.last()].into_iter().flatten() {
                mask.disc(*end, width / 2.0);
            }
        }
        spots => dashed(mask, spots, width, dashes),
    }
}

/// Adds a line: parts that go up and down within a pixel as upright bars, the others as segments.
///
/// Dense points are such parts: a column of pixels has up to four. A bar has two edges, three segments have six.
fn columns(mask: &mut Mask, spots: &[Spot], width: f64) {
    let half = width / 2.0;
    let mut line = Vec::new();
    let mut rest = spots;
    while let Some(first) = rest.first() {
        let near = rest
            .iter()
            .take_while(|spot| (spot.x - first.x).abs() <= 1.0)
            .count();
        let (column, others) = rest.split_at(near.max(1));
        rest = others;
        let bar = column
            .iter()
            .fold(Rect::new(first.x, first.y, first.x, first.y), |bar, spot| {
                let (left, right) = (bar.left.min(spot.x), bar.right.max(spot.x));
                Rect::new(left, bar.top.min(spot.y), right, bar.bottom.max(spot.y))
            });
        let (Some(last), true) = (column.last(), column.len() > 2 && bar.height() > width * 2.0) else {
            line.extend(column);
            continue;
        };
        let bar = bar.grown(half);
        mask.polygon(&[
            Spot::new(bar.left, bar.top),
            Spot::new(bar.right, bar.top),
            Spot::new(bar.right, bar.bottom),
            Spot::new(bar.left, bar.bottom),
        ]);
        line.push(*first);
        if line.len() > 1 {
            solid(mask, &line, half);
        }
        line.clear();
        line.push(*last);
    }
    if line.len() > 1 {
        solid(mask, &line, half);
    }
}

/// Adds a line of at least two places that are apart.
fn solid(mask: &mut Mask, spots: &[Spot], half: f64) {
    let across = |direction: Spot| Spot::new(-direction.y * half, direction.x * half);
    let segments = spots
        .windows(2)
        .map(|pair| (pair[0], pair[1], Segment::new(pair[0], pair[1])));
    let mut segments = segments.peekable();
    // Half of the width across the line, as a vector, at the start of the segment.
    let mut start = None;
    while let Some((from, to, here)) = segments.next() {
        let straight = across(here.direction);
        let first = start.unwrap_or(straight);
        let (end, next_start) = match segments.peek() {
            None => (straight, None),
            Some((_, _, next)) => {
                let cosine = here.direction.x * next.direction.x + here.direction.y * next.direction.y;
                // The tangent of half the bend: how far along the segments their common edge reaches.
                let reach = half * ((1.0 - cosine) / (1.0 + cosine)).max(0.0).sqrt();
                let following = across(next.direction);
                if cosine > 0.0 && reach < here.length / 2.0 && reach < next.length / 2.0 {
                    let miter = 1.0 / (1.0 + cosine);
                    let common = Spot::new(
                        (straight.x + following.x) * miter,
                        (straight.y + following.y) * miter,
                    );
                    (common, Some(common))
                } else {
                    mask.disc(to, half);
                    (straight, Some(following))
                }
            }
        };
        mask.polygon(&[
            Spot::new(from.x + first.x, from.y + first.y),
            Spot::new(to.x + end.x, to.y + end.y),
            Spot::new(to.x - end.x, to.y - end.y),
            Spot::new(from.x - first.x, from.y - first.y),
        ]);
        start = next_start;
    }
}

/// Returns the distance of two places. Coordinates are small: `hypot` is exact for larger ones too, and slow.
fn distance(from: Spot, to: Spot) -> f64 {
    let (x, y) = (to.x - from.x, to.y - from.y);
    (x * x + y * y).sqrt()
}

/// Direction, as a vector of length 1, and length of a part of a line.
struct Segment {
    direction: Spot,
    length: f64,
}

impl Segment {
    fn new(from: Spot, to: Spot) -> Self {
        let length = distance(from, to);
        Self {
            direction: Spot::new((to.x - from.x) / length, (to.y - from.y) / length),
            length,
        }
    }
}

fn dashed(mask: &mut Mask, spots: &[Spot], width: f64, dashes: &[f64]) {
    let mut lengths = dashes.iter().map(|length| (length * width).max(0.5)).cycle();
    let mut left = lengths.next().unwrap_or(1.0);
    let mut drawn = true;
    let mut dash = vec![spots[0]];
    for pair in spots.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let Segment {
            direction: toward,
            length: mut rest,
        } = Segment::new(from, to);
        while rest > left {
            from = Spot::new(from.x + toward.x * left, from.y + toward.y * left);
            rest -= left;
            if drawn {
                dash.push(from);
                draw_dash(mask, &mut dash, width / 2.0);
            }
            dash.clear();
            dash.push(from);
            drawn = !drawn;
            left = lengths.next().unwrap_or(1.0);
        }
        left -= rest;
        dash.push(to);
    }
    if drawn {
        draw_dash(mask, &mut dash, width / 2.0);
    }
}

fn draw_dash(mask: &mut Mask, dash: &mut Vec<Spot>, half: f64) {
    dash.dedup_by(|next, previous| distance(*previous, *next) <= MIN_LENGTH);
    if dash.len() > 1 {
        solid(mask, dash, half);
    }
}
