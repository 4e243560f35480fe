//! Coalesces incrementally emitted groups, for protocols that need whole results.

use crate::context::budget::Held;
use crate::error::QueryError;
use crate::exec::frame::{Delivery, Frame, Group};

/// Coalesces groups. Their memory stays held.
#[derive(Debug, Default)]
pub(super) struct FrameCoalescer {
    /// Groups that are not whole yet, ascending by number.
    open: Vec<(Group, Held)>,
}

impl FrameCoalescer {
    /// Adds a frame, and returns those that are whole. There is no [`Frame::More`] among them.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`] if a group that grows takes more than the query may hold.
    pub(super) fn add(&mut self, delivery: Delivery) -> Result<Vec<Delivery>, QueryError> {
        let Delivery { frame, held } = delivery;
        Ok(match frame {
            Frame::Group(group) if !group.is_whole => {
                self.open.push((group, held));
                Vec::new()
            }
            Frame::More { number, points } => {
                let first = self.open.first().map_or(0, |(group, _)| group.number);
                let place = number.checked_sub(first);
                if let Some((group, own)) = place.and_then(|place| self.open.get_mut(place)) {
                    group.points.append(points);
                    own.merge(held);
                    let bytes = group.held_bytes();
                    own.grow(bytes.saturating_sub(own.bytes()))?;
                    own.shrink_to(bytes);
                }
                Vec::new()
            }
            Frame::Annotations { number, annotations } => {
                let first = self.open.first().map_or(0, |(group, _)| group.number);
                let place = number.checked_sub(first);
                if let Some((group, own)) = place.and_then(|place| self.open.get_mut(place)) {
                    group.annotations = Some(annotations);
                    own.merge(held);
                }
                Vec::new()
            }
            Frame::Done { .. } => {
                let whole = |(group, held)| Delivery {
                    frame: Frame::Group(Group {
                        is_whole: true,
                        ..group
                    }),
                    held,
                };
                let done = Delivery { frame, held };
                self.open.drain(..).map(whole).chain([done]).collect()
            }
            Frame::Group(_) | Frame::GlobalAnnotations(_) | Frame::Statistics(_) => {
                vec![Delivery { frame, held }]
            }
        })
    }
}
