//! Lines as polygons: a quadrilateral for each segment.
//!
//! Quadrilaterals of a gentle bend share an edge, so that no pixel is covered twice; at a sharp bend they overlap, and a
//! disc makes the corner round.

use super::mask::Mask;
use crate::geometry::Spot;

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
            solid(mask, spots, width / 2.0);
            // Round ends, as in SVG.
            for end in [spots.first(), spots.last()].into_iter().flatten() {
                mask.disc(*end, width / 2.0);
            }
        }
        spots => dashed(mask, spots, width, dashes),
    }
}

/// The half widths across a segment, as vectors, at its two ends.
fn solid(mask: &mut Mask, spots: &[Spot], half: f64) {
    let directions: Vec<Spot> = spots.windows(2).map(|pair| direction(pair[0], pair[1])).collect();
    let lengths: Vec<f64> = spots
        .windows(2)
        .map(|pair| (pair[1].x - pair[0].x).hypot(pair[1].y - pair[0].y))
        .collect();
    let across = |direction: Spot| Spot::new(-direction.y * half, direction.x * half);
    let mut start = across(directions[0]);
    for (index, pair) in spots.windows(2).enumerate() {
        let here = directions[index];
        let straight = across(here);
        let (end, next_start) = match directions.get(index + 1) {
            None => (straight, straight),
            Some(next) => {
                let cosine = here.x * next.x + here.y * next.y;
                // The tangent of half the bend: how far along the segments their common edge reaches.
                let reach = half * ((1.0 - cosine) / (1.0 + cosine)).max(0.0).sqrt();
                if cosine > 0.0 && reach < lengths[index] / 2.0 && reach < lengths[index + 1] / 2.0 {
                    let following = across(*next);
                    let miter = 1.0 / (1.0 + cosine);
                    let common = Spot::new(
                        (straight.x + following.x) * miter,
                        (straight.y + following.y) * miter,
                    );
                    (common, common)
                } else {
                    mask.disc(pair[1], half);
                    (straight, across(*next))
                }
            }
        };
        mask.polygon(&[
            Spot::new(pair[0].x + start.x, pair[0].y + start.y),
            Spot::new(pair[1].x + end.x, pair[1].y + end.y),
            Spot::new(pair[1].x - end.x, pair[1].y - end.y),
            Spot::new(pair[0].x - start.x, pair[0].y - start.y),
        ]);
        start = next_start;
    }
}

fn direction(from: Spot, to: Spot) -> Spot {
    let length = (to.x - from.x).hypot(to.y - from.y);
    Spot::new((to.x - from.x) / length, (to.y - from.y) / length)
}

fn dashed(mask: &mut Mask, spots: &[Spot], width: f64, dashes: &[f64]) {
    let mut lengths = dashes.iter().map(|length| (length * width).max(0.5)).cycle();
    let mut left = lengths.next().unwrap_or(1.0);
    let mut drawn = true;
    let mut dash = vec![spots[0]];
    for pair in spots.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let toward = direction(from, to);
        let mut rest = (to.x - from.x).hypot(to.y - from.y);
        while rest > left {
            from = Spot::new(from.x + toward.x * left, from.y + toward.y * left);
            rest -= left;
            if drawn {
                dash.push(from);
                draw_dash(mask, &dash, width / 2.0);
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
        draw_dash(mask, &dash, width / 2.0);
    }
}

fn draw_dash(mask: &mut Mask, dash: &[Spot], half: f64) {
    let mut spots = dash.to_vec();
    spots.dedup_by(|a, b| (a.x - b.x).hypot(a.y - b.y) <= MIN_LENGTH);
    if spots.len() > 1 {
        solid(mask, &spots, half);
    }
}
