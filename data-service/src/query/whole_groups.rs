//! Groups that were told bit by bit put together again, for who can only tell them whole.

use super::budget::{Limits, POINT_BYTES, Resource};
use super::error::QueryError;
use super::frame::{Frame, Group};

/// Puts the groups of an answer together.
#[derive(Debug)]
pub(super) struct WholeGroups {
    limits: Limits,
    /// Points of the answer so far.
    points: u64,
    /// Groups of which more is to come, by their numbers.
    open: Vec<Group>,
}

impl WholeGroups {
    /// None yet.
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            points: 0,
            open: Vec::new(),
        }
    }

    /// Takes a frame, and gives those that can be told now. There is no [`Frame::More`] among them.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`] if all points of the answer together take more than may be held.
    pub(super) fn take(&mut self, frame: Frame) -> Result<Vec<Frame>, QueryError> {
        self.points += match &frame {
            Frame::Group(Group { points, .. }) | Frame::More { points, .. } => points.len() as u64,
            Frame::Done { .. } | Frame::Statistics(_) => 0,
        };
        let bytes = self.points.saturating_mul(POINT_BYTES);
        self.limits.check(Resource::Memory, bytes)?;
        Ok(match frame {
            Frame::Group(group) if !group.is_whole => {
                self.open.push(group);
                Vec::new()
            }
            Frame::More { number, points } => {
                let first = self.open.first().map_or(0, |group| group.number);
                let place = number.checked_sub(first);
                if let Some(group) = place.and_then(|place| self.open.get_mut(place)) {
                    group.points.append(points);
                }
                Vec::new()
            }
            Frame::Done { .. } => {
                let whole = |group| {
                    Frame::Group(Group {
                        is_whole: true,
                        ..group
                    })
                };
                self.open.drain(..).map(whole).chain([frame]).collect()
            }
            Frame::Group(_) | Frame::Statistics(_) => vec![frame],
        })
    }
}
