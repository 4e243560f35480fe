//! How many elements a request may have, and counting them before it is decoded.
//!
//! An empty element of a repeated field has two bytes on the wire and hundreds in memory, so a message
//! within the size limit could take gigabytes before a handler sees how many points it has. The bounds are
//! options of the contract's fields (`max_items` in `common/v1/bounds.proto`); the build makes tables of
//! them. An encoded request is walked along these tables: a few instructions for each field, and one step
//! over a message without repeated fields.

use tonic::Status;

use crate::error;

/// The most memory that the elements of a request take together, beside the bytes of their texts. Vectors
/// grow by doubling, so twice as much may be allocated.
pub(crate) const MAX_UNFOLDED_BYTES: u64 = 128 << 20;

include!(concat!(env!("OUT_DIR"), "/bounds.rs"));

/// The bound of a repeated field.
pub(super) struct Bound {
    /// Its full name.
    field: &'static str,
    /// Elements in one request, in all parents together.
    limit: u32,
    /// The most memory of an element, beside the bytes of its texts.
    element_bytes: u32,
}

/// A counting step: the action at a field.
#[derive(Clone, Copy)]
struct Step {
    /// The place in [`BOUNDS`] of a repeated field.
    counter: Option<usize>,
    shape: Shape,
}

/// How a field is encoded.
#[derive(Clone, Copy)]
enum Shape {
    /// A message with repeated fields: its place in [`NODES`].
    Message(usize),
    /// A text, bytes, or a message without repeated fields.
    Bytes,
    /// Numbers of variable length, packed or not.
    Varint,
    /// Numbers of this length in bytes, packed or not.
    Fixed(usize),
}

/// The bounds of one request message.
#[derive(Clone, Copy)]
pub(crate) struct RequestBounds {
    node: Option<usize>,
}

impl RequestBounds {
    /// The bounds of the request with this full name; `None` for a message that no call takes.
    pub(crate) fn for_message(full_name: &str) -> Option<Self> {
        let place = REQUESTS.binary_search_by_key(&full_name, |(name, _)| name).ok()?;
        REQUESTS.get(place).map(|(_, node)| Self { node: *node })
    }

    /// Checks an encoded message, and returns what its elements take in memory beside the bytes of their
    /// texts, at most.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT, if it has too many elements or is malformed where they are counted.
    pub(crate) fn check(self, name: &str, message: &[u8]) -> Result<u64, Status> {
        let Some(node) = self.node.and_then(|node| NODES.get(node)) else {
            return Ok(0);
        };
        let mut counts = Counts {
            elements: [0; BOUNDS.len()],
            unfolded: 0,
        };
        counts.add(node, message).map_err(|stop| match stop {
            Stop::Malformed => error::malformed_message(name, "a field is cut short or has no valid tag"),
            Stop::TooMany(bound) => error::too_many_items(bound.field, bound.limit),
            Stop::TooLarge(bound) => error::unfolds_to_too_much(bound.field, MAX_UNFOLDED_BYTES),
        })?;
        Ok(counts.unfolded)
    }
}

/// The elements of one message so far.
struct Counts {
    elements: [u32; BOUNDS.len()],
    /// Their memory.
    unfolded: u64,
}

/// Why counting ended early.
enum Stop {
    /// Not protobuf, or with groups, which the contract does not have.
    Malformed,
    TooMany(&'static Bound),
    TooLarge(&'static Bound),
}

impl Counts {
    /// Adds the elements in the fields of a message.
    fn add(&mut self, node: &[Option<Step>], message: &[u8]) -> Result<(), Stop> {
        let mut rest = message;
        while !rest.is_empty() {
            let (number, value) = next_field(&mut rest).ok_or(Stop::Malformed)?;
            let Some(Some(step)) = node.get(number) else {
                continue;
            };
            if let Some(counter) = step.counter {
                self.count(counter, elements(step.shape, value))?;
            }
            if let (Shape::Message(child), Value::Bytes(element)) = (step.shape, value)
                && let Some(child) = NODES.get(child)
            {
                self.add(child, element)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, counter: usize, elements: usize) -> Result<(), Stop> {
        let (Some(bound), Some(count)) = (BOUNDS.get(counter), self.elements.get_mut(counter)) else {
            return Ok(());
        };
        let elements = u32::try_from(elements).unwrap_or(u32::MAX);
        *count = count.saturating_add(elements);
        if *count > bound.limit {
            return Err(Stop::TooMany(bound));
        }
        self.unfolded += u64::from(elements) * u64::from(bound.element_bytes);
        if self.unfolded > MAX_UNFOLDED_BYTES {
            return Err(Stop::TooLarge(bound));
        }
        Ok(())
    }
}

/// How many elements an occurrence of a repeated field has.
fn elements(shape: Shape, value: Value<'_>) -> usize {
    match (shape, value) {
        (Shape::Varint, Value::Bytes(packed)) => packed.chunks(CHUNK).map(varints).sum(),
        (Shape::Fixed(bytes), Value::Bytes(packed)) => packed.len() / bytes,
        _ => 1,
    }
}

/// Bytes that are counted at a time: as many as a byte counts to, so that the compiler counts 16 or more of
/// them with one instruction.
const CHUNK: usize = 255;

/// Numbers that end in these bytes. The last byte of each has its highest bit clear.
fn varints(chunk: &[u8]) -> usize {
    let ends: u8 = chunk.iter().map(|byte| u8::from(*byte < 0x80)).sum();
    usize::from(ends)
}

/// The value of a field.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number,
    /// Of a text, a message or packed numbers.
    Bytes(&'a [u8]),
}

/// The next field: its number and value. `None` where the bytes are no protobuf.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(usize, Value<'a>)> {
    let key = u32::try_from(varint(rest)?).ok()?;
    let number = usize::try_from(key >> 3).ok().filter(|number| *number > 0)?;
    let skipped = match key & 7 {
        0 => {
            varint(rest)?;
            return Some((number, Value::Number));
        }
        1 => 8,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (element, behind) = rest.split_at_checked(length)?;
            *rest = behind;
            return Some((number, Value::Bytes(element)));
        }
        5 => 4,
        // A group, which could hide fields from the count.
        _ => return None,
    };
    *rest = rest.get(skipped..)?;
    Some((number, Value::Number))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    // Nearly all tags and lengths have one byte.
    if let Some((byte, behind)) = rest.split_first()
        && *byte < 0x80
    {
        *rest = behind;
        return Some(u64::from(*byte));
    }
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests;
