//! The places of samples in the plot.

use crate::geometry::{Path, Rect};
use crate::reduce::{Sample, Trace};
use crate::scale::Scale;

/// Pixels beyond which places are moved: lines to values far outside keep about their direction.
const FAR: f64 = 20_000.0;

/// The coordinates of an axis in the plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane<'a> {
    pub(crate) plot: Rect,
    pub(crate) scale: &'a Scale,
}

impl Plane<'_> {
    pub(crate) fn x(&self, along: f64) -> f64 {
        self.plot.left + along * self.plot.width()
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        let y = self.plot.bottom - self.scale.height(value) * self.plot.height();
        if y.is_nan() {
            self.plot.bottom
        } else {
            y.clamp(-FAR, FAR)
        }
    }

    /// Returns straight lines through the samples.
    pub(crate) fn lines(&self, trace: &Trace) -> Path {
        let mut path = Path::default();
        for run in trace.runs() {
            path.start();
            run.iter()
                .for_each(|sample| path.push(self.x(sample.along), self.y(sample.value)));
        }
        path
    }

    /// Returns lines on which each value lasts until the next sample.
    pub(crate) fn steps(&self, trace: &Trace) -> Path {
        let mut path = Path::default();
        for run in trace.runs() {
            path.start();
            let mut previous: Option<&Sample> = None;
            for sample in run {
                let x = self.x(sample.along);
                if let Some(previous) = previous {
                    path.push(x, self.y(previous.value));
                }
                path.push(x, self.y(sample.value));
                previous = Some(sample);
            }
        }
        path
    }
}
