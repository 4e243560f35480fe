//! Points, rectangles and paths in pixels, from the top left corner of the picture.

/// A place in the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spot {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Spot {
    pub(crate) fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }
}

/// An axis-parallel rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Rect {
    pub(crate) fn new(left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self {
            left,
            top,
            right,
            bottom,
        }
    }

    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn center(&self) -> Spot {
        Spot::new((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0)
    }

    /// Returns a rectangle that is larger by `by` pixels on each side.
    pub(crate) fn grown(&self, by: f64) -> Self {
        Self::new(self.left - by, self.top - by, self.right + by, self.bottom + by)
    }
}

/// Runs of connected places: lines with gaps, or several polygons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    spots: Vec<Spot>,
    /// The index of each run's first place.
    starts: Vec<usize>,
}

impl Path {
    /// Begins a run. A run without places is dropped.
    pub(crate) fn start(&mut self) {
        if self.starts.last() != Some(&self.spots.len()) {
            self.starts.push(self.spots.len());
        }
    }

    pub(crate) fn push(&mut self, x: f64, y: f64) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.spots.push(Spot::new(x, y));
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &[Spot]> {
        let ends = self.starts.iter().skip(1).copied().chain([self.spots.len()]);
        self.starts
            .iter()
            .zip(ends)
            .map(|(start, end)| &self.spots[*start..end])
            .filter(|run| !run.is_empty())
    }

    pub(crate) fn spots(&self) -> &[Spot] {
        &self.spots
    }
}

impl FromIterator<Spot> for Path {
    fn from_iter<I: IntoIterator<Item = Spot>>(spots: I) -> Self {
        Self {
            spots: spots.into_iter().collect(),
            starts: vec![0],
        }
    }
}
