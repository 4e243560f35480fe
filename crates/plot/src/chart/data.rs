//! The data of a plot: reduced series, their extents, and their shapes in the plot.

use super::ScaledAxis;
use crate::axis::{AxisSide, TimeRange, ValueScale};
use crate::canvas::{Canvas, Paint, Stroke};
use crate::color::Color;
use crate::geometry::{Path, Rect};
use crate::heat_map::HeatMap;
use crate::layout::Fonts;
use crate::plot::Plot;
use crate::reduce::{self, Between, Reduction, Trace};
use crate::scale::Extent;
use crate::series::{Points, Series, Style};
use crate::stack::Stack;
use crate::trace_path::Plane;

/// The values and the use of each axis.
pub(super) struct AxisData {
    pub(super) extents: [Option<Extent>; 2],
    pub(super) used: [bool; 2],
}

/// The series of a plot, reduced.
pub(super) struct Drawn {
    pub(super) range: TimeRange,
    pub(super) axes: AxisData,
    /// In the order of the plot's series; of histograms and stacked areas empty.
    traces: Vec<Trace>,
    stacks: [Stack; 2],
    /// In the order of the plot's series; `None` for values.
    heat_maps: Vec<Option<HeatMap>>,
}

/// With more series, looks repeat: no lines are dashed, which takes longer to draw.
const DASHED_SERIES: usize = 42;

fn side(axis: AxisSide) -> usize {
    match axis {
        AxisSide::Left => 0,
        AxisSide::Right => 1,
    }
}

/// Returns the colour and the dashes of a series.
pub(super) fn look(plot: &Plot<'_>, index: usize) -> (Color, &'static [f64]) {
    let (color, dashes) = plot.theme.series(index);
    match plot.series.get(index).and_then(|series| series.color) {
        Some(color) => (color, &[]),
        None if plot.series.len() > DASHED_SERIES => (color, &[]),
        None => (color, dashes),
    }
}

impl Drawn {
    pub(super) fn new(plot: &Plot<'_>) -> Self {
        let range = plot.range.normalized();
        let columns = reduce::columns(plot.size, plot.series.len());
        let log = |axis: AxisSide| plot.axes[side(axis)].scale == ValueScale::Logarithmic;
        let mut traces: Vec<Trace> = plot
            .series
            .iter()
            .map(|series| {
                let between = match series.style {
                    Style::Line | Style::LineAndPoints | Style::StackedArea => Between::Line,
                    Style::Steps => Between::Step,
                    Style::Points => Between::Nothing,
                };
                let only_positive = log(series.axis);
                Reduction {
                    range,
                    columns,
                    gaps: series.gaps,
                    between,
                    only_positive,
                }
                .reduce(&series.points)
            })
            .collect();

        let mut extents: [Option<Extent>; 2] = [None, None];
        let mut used = [false, false];
        let mut include = |axis: usize, extent: Option<Extent>| {
            extents[axis] = match (extents[axis], extent) {
                (Some(known), other) => Some(known.union(other)),
                (None, other) => other,
            };
        };
        let heat_map = |series: &Series<'_>| match &series.points {
            Points::Histograms(histograms) => {
                Some(HeatMap::new(histograms, range, plot.size, log(series.axis)))
            }
            _ => None,
        };
        let heat_maps: Vec<Option<HeatMap>> = plot.series.iter().map(heat_map).collect();
        for ((series, trace), heat_map) in plot.series.iter().zip(&traces).zip(&heat_maps) {
            used[side(series.axis)] = true;
            let extent = match (heat_map, series.style) {
                (Some(heat_map), _) => heat_map.extent(log(series.axis)),
                (None, Style::StackedArea) => None,
                (None, _) => Extent::from_values(trace.samples().iter().map(|sample| sample.value)),
            };
            include(side(series.axis), extent);
        }
        let stacks = [AxisSide::Left, AxisSide::Right].map(|axis| {
            let stacked = stacked_series(plot, axis);
            let layers: Vec<&Trace> = stacked.iter().filter_map(|index| traces.get(*index)).collect();
            let stack = Stack::new(&layers, columns);
            for layer in &stack.layers {
                let extent = Extent::from_values(layer.tops.iter().copied());
                // Areas begin at 0.
                let ground = if log(axis) {
                    None
                } else {
                    Some(Extent {
                        lower: 0.0,
                        upper: 0.0,
                    })
                };
                include(side(axis), extent.map(|extent| extent.union(ground)));
            }
            stack
        });
        for (series, trace) in plot.series.iter().zip(&mut traces) {
            if series.style == Style::StackedArea {
                *trace = Trace::default();
            }
        }
        if used == [false, false] {
            used[0] = true;
        }
        Self {
            range,
            axes: AxisData { extents, used },
            traces,
            stacks,
            heat_maps,
        }
    }

    /// Whether nothing of the series is in the range.
    pub(super) fn is_empty(&self) -> bool {
        let layers = self.stacks.iter().flat_map(|stack| &stack.layers);
        self.traces.iter().all(|trace| trace.samples().is_empty())
            && layers.flat_map(|layer| &layer.present).all(|present| !present)
            && self.heat_maps.iter().flatten().all(HeatMap::is_empty)
    }

    /// Returns the largest count of a series of histograms.
    pub(super) fn largest_count(&self, index: usize) -> Option<f64> {
        self.heat_maps
            .get(index)?
            .as_ref()
            .map(|heat_map| heat_map.largest)
    }

    /// Draws the shapes of all series.
    pub(super) fn draw(
        &self,
        plot: &Plot<'_>,
        canvas: &mut dyn Canvas,
        area: Rect,
        axes: &[ScaledAxis; 2],
        fonts: &Fonts,
    ) {
        for (series, heat_map) in plot.series.iter().zip(&self.heat_maps) {
            let plane = Plane {
                plot: area,
                scale: &axes[side(series.axis)].scale,
            };
            heat_map
                .iter()
                .for_each(|heat_map| heat_map.draw(canvas, &plane, &plot.theme));
        }
        for axis in [AxisSide::Left, AxisSide::Right] {
            let plane = Plane {
                plot: area,
                scale: &axes[side(axis)].scale,
            };
            self.draw_stack(plot, canvas, axis, &plane);
        }
        let width = fonts.line_width(plot.series.len());
        for (index, (series, trace)) in plot.series.iter().zip(&self.traces).enumerate() {
            if trace.samples().is_empty() {
                continue;
            }
            let plane = Plane {
                plot: area,
                scale: &axes[side(series.axis)].scale,
            };
            let (color, dashes) = look(plot, index);
            let stroke = Stroke {
                paint: color.into(),
                width,
                dashes,
            };
            match series.style {
                Style::Points => canvas.dots(&plane.lines(trace), width * 1.3, color.into()),
                Style::Steps => canvas.stroke(&plane.steps(trace), stroke),
                Style::Line | Style::StackedArea => canvas.stroke(&plane.lines(trace), stroke),
                Style::LineAndPoints => {
                    let path = plane.lines(trace);
                    canvas.stroke(&path, stroke);
                    let radius = width * 1.6;
                    let touch = trace.samples().len() as f64 * radius * 2.5 > area.width();
                    if !touch && !trace.reduced {
                        canvas.dots(&path, radius, color.into());
                    }
                }
            }
        }
    }

    fn draw_stack(&self, plot: &Plot<'_>, canvas: &mut dyn Canvas, axis: AxisSide, plane: &Plane<'_>) {
        let stack = &self.stacks[side(axis)];
        let place = |(along, value): (&f64, &f64)| (plane.x(*along), plane.y(*value));
        let ground = vec![0.0; stack.times.len()];
        let mut below = &ground;
        for (layer, index) in stack.layers.iter().zip(stacked_series(plot, axis)) {
            let (color, _) = look(plot, index);
            let mut area = Path::default();
            let forth = stack.times.iter().zip(&layer.tops).map(place);
            let back = stack.times.iter().zip(below).rev().map(place);
            forth.chain(back).for_each(|(x, y)| area.push(x, y));
            canvas.fill(&area, Paint { color, opacity: 0.7 });
            below = &layer.tops;
        }
        // Lines above all areas: a thin layer stays visible.
        for (layer, index) in stack.layers.iter().zip(stacked_series(plot, axis)) {
            let (color, _) = look(plot, index);
            let mut line = Path::default();
            for ((along, top), present) in stack.times.iter().zip(&layer.tops).zip(&layer.present) {
                if *present {
                    line.push(plane.x(*along), plane.y(*top));
                } else {
                    line.start();
                }
            }
            canvas.stroke(
                &line,
                Stroke {
                    paint: color.into(),
                    width: 1.0,
                    dashes: &[],
                },
            );
        }
    }
}

/// Returns the indexes of an axis' stacked series.
fn stacked_series(plot: &Plot<'_>, axis: AxisSide) -> Vec<usize> {
    let stacked = plot.series.iter().enumerate().filter(|(_, series)| {
        let values = !matches!(series.points, Points::Histograms(_));
        values && series.style == Style::StackedArea && series.axis == axis
    });
    stacked.map(|(index, _)| index).collect()
}
