//! The head of a frame, which may arrive in pieces.

/// The received bytes of a head of `N` bytes.
#[derive(Debug)]
pub(crate) struct Head<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Head<N> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }

    /// Whether some bytes of the head have arrived.
    pub(crate) const fn has_begun(&self) -> bool {
        self.length > 0
    }

    /// Takes the bytes of the head from the beginning of `received`. Returns the head once it is complete; the next bytes
    /// begin another head.
    pub(crate) fn take(&mut self, received: &mut &[u8]) -> Option<[u8; N]> {
        let (head, rest) = received.split_at(received.len().min(N - self.length));
        for (place, byte) in self.bytes.iter_mut().skip(self.length).zip(head) {
            *place = *byte;
        }
        self.length += head.len();
        *received = rest;
        if self.length < N {
            return None;
        }
        self.length = 0;
        Some(self.bytes)
    }
}
