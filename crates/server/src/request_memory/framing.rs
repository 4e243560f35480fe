//! gRPC's framing of messages: a byte for compression, four for the length, the message.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::head::Head;

/// Bytes before each message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// Smaller pieces of a message are copied together: a piece shares the buffer of all that was received with it.
const SHARED_BYTES: usize = 1024;

/// The position in the messages of a request.
#[derive(Debug)]
pub(super) struct Framing {
    /// The charge of a byte, plain and compressed.
    factors: [u64; 2],
    header: Head<HEADER_BYTES>,
    /// Whether the header of the message is complete, and the message is not.
    is_in_message: bool,
    is_compressed: bool,
    /// Bytes of the message that have not arrived.
    missing: u64,
    /// The charge of the incomplete message so far.
    unfinished_charge: u64,
}

/// The effect of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advance {
    /// The charge of the bytes.
    pub(super) charge: u64,
    /// How many of the bytes belong to complete messages.
    pub(super) complete: usize,
}

impl Framing {
    /// With the charge of a byte, plain and compressed.
    pub(super) const fn new(factors: [u64; 2]) -> Self {
        Self {
            factors,
            header: Head::new(),
            is_in_message: false,
            is_compressed: false,
            missing: 0,
            unfinished_charge: 0,
        }
    }

    /// The charge of a byte of the message.
    const fn factor(&self) -> u64 {
        let [plain, compressed] = self.factors;
        if self.is_compressed { compressed } else { plain }
    }

    /// Whether a message has begun and is not complete.
    pub(super) const fn is_within_message(&self) -> bool {
        self.is_in_message || self.header.has_begun()
    }

    /// The charge of the incomplete message so far.
    pub(super) const fn unfinished_charge(&self) -> u64 {
        self.unfinished_charge
    }

    /// The charge of the incomplete message once it is complete.
    pub(super) const fn message_charge(&self) -> u64 {
        self.unfinished_charge + self.missing * self.factor()
    }

    /// Advances by received bytes.
    ///
    /// # Errors
    ///
    /// The length of a message that is announced with more than `most` bytes.
    pub(super) fn advance(&mut self, received: &[u8], most: u64) -> Result<Advance, u64> {
        let mut advance = Advance {
            charge: 0,
            complete: 0,
        };
        let mut bytes = received;
        while !bytes.is_empty() {
            if !self.is_in_message {
                let Some([is_compressed, length @ ..]) = self.header.take(&mut bytes) else {
                    break;
                };
                self.is_in_message = true;
                self.is_compressed = is_compressed != 0;
                self.missing = u32::from_be_bytes(length).into();
                if self.missing > most {
                    return Err(self.missing);
                }
            } else {
                let arrived = u64::try_from(bytes.len()).unwrap_or(u64::MAX).min(self.missing);
                let (_, rest) = bytes.split_at(usize::try_from(arrived).unwrap_or(bytes.len()));
                bytes = rest;
                self.missing -= arrived;
                let factor = self.factor();
                advance.charge += arrived * factor;
                self.unfinished_charge += arrived * factor;
            }
            if self.missing == 0 {
                self.is_in_message = false;
                self.unfinished_charge = 0;
                advance.complete = received.len() - bytes.len();
            }
        }
        Ok(advance)
    }
}

/// The received bytes of an incomplete message.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    /// The last piece, if it was copied.
    copied: BytesMut,
}

impl Pieces {
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() < SHARED_BYTES {
            self.copied.extend_from_slice(&piece);
        } else {
            self.end_copied();
            self.pieces.push_back(piece);
        }
    }

    fn end_copied(&mut self) {
        if !self.copied.is_empty() {
            self.pieces.push_back(self.copied.split().freeze());
        }
    }

    /// Moves all pieces to the end of `complete`.
    pub(super) fn move_to(&mut self, complete: &mut VecDeque<Bytes>) {
        self.end_copied();
        complete.append(&mut self.pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTORS: [u64; 2] = [5, 40];

    fn messages(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.push(0);
            bytes.extend(u32::try_from(*length).unwrap().to_be_bytes());
            bytes.extend(vec![7; *length]);
        }
        bytes
    }

    /// Whatever way the bytes are cut, the same is charged and messages end at the same places.
    #[test]
    fn frames_may_be_cut_anywhere() {
        let lengths = [0, 1, 300, 5, 0, 70];
        let bytes = messages(&lengths);
        let ends: Vec<usize> = (1..=lengths.len())
            .map(|count| messages(&lengths[..count]).len())
            .collect();
        for piece in 1..bytes.len() {
            let mut framing = Framing::new(FACTORS);
            let (mut charge, mut at) = (0, 0);
            for chunk in bytes.chunks(piece) {
                let advance = framing.advance(chunk, 300).unwrap();
                charge += advance.charge;
                let last_end = ends
                    .iter()
                    .rfind(|end| (at + 1..=at + chunk.len()).contains(*end));
                let expected = last_end.map_or(0, |end| end - at);
                assert_eq!(advance.complete, expected, "at {at} in pieces of {piece}");
                at += chunk.len();
                assert_eq!(framing.is_within_message(), !ends.contains(&at), "at {at}");
            }
            assert_eq!(charge, 376 * 5, "in pieces of {piece}");
            assert_eq!(framing.unfinished_charge(), 0);
        }
    }

    #[test]
    fn compressed_messages_are_charged_for_the_decompressed_form() {
        let mut compressed = messages(&[100]);
        compressed[0] = 1;
        assert_eq!(
            Framing::new(FACTORS).advance(&compressed, 100).unwrap().charge,
            4_000
        );
    }

    #[test]
    fn a_length_above_the_limit_is_an_error_once_it_is_announced() {
        let bytes = messages(&[10, 301]);
        let mut framing = Framing::new(FACTORS);
        framing.advance(&bytes[..19], 300).unwrap();
        assert_eq!(framing.advance(&bytes[19..20], 300), Err(301));
    }

    #[test]
    fn small_pieces_are_copied_together_in_order() {
        let mut pieces = Pieces::default();
        let large = Bytes::from(vec![2; SHARED_BYTES]);
        for piece in [
            Bytes::from_static(&[0]),
            Bytes::from_static(&[1]),
            large.clone(),
            Bytes::from_static(&[3]),
        ] {
            pieces.push(piece);
        }
        let mut complete = VecDeque::new();
        pieces.move_to(&mut complete);
        assert_eq!(
            complete,
            [Bytes::from_static(&[0, 1]), large, Bytes::from_static(&[3])]
        );
    }
}
