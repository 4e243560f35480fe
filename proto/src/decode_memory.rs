//! Accounts for the memory of requests while they are decoded.
//!
//! The decoded size of a message is known after it has arrived, is decompressed and its elements are
//! counted: in the codec, which receives the bytes from tonic, but nothing of the call. The server of the
//! call therefore installs a meter for the duration of a poll; a message is decoded on the polling thread.

use std::cell::RefCell;
use std::sync::Arc;

use tonic::Status;

/// Takes the memory of decoded messages.
pub trait Meter: Send + Sync {
    /// Takes `bytes` of memory.
    ///
    /// # Errors
    ///
    /// The status of the call, if there is no memory.
    fn take(&self, bytes: u64) -> Result<(), Status>;
}

thread_local! {
    static METER: RefCell<Option<Arc<dyn Meter>>> = const { RefCell::new(None) };
}

/// Calls `poll`; requests that it decodes take their memory from the meter.
pub fn metered<R>(meter: &Arc<dyn Meter>, poll: impl FnOnce() -> R) -> R {
    /// Puts back what was there before, also when `poll` panics.
    struct Outer(Option<Arc<dyn Meter>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            METER.set(self.0.take());
        }
    }
    let _outer = Outer(METER.replace(Some(Arc::clone(meter))));
    poll()
}

/// A function that takes memory from the meter of this thread wherever it is called.
pub fn with_meter<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let meter = METER.with_borrow(Clone::clone);
    move || match meter {
        Some(meter) => metered(&meter, work),
        None => work(),
    }
}

/// Takes the memory of a request that is about to be decoded, if there is a meter. For codecs.
///
/// # Errors
///
/// As [`Meter::take`].
pub fn take(bytes: u64) -> Result<(), Status> {
    let meter = METER.with_borrow(Clone::clone);
    meter.map_or(Ok(()), |meter| meter.take(bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Sum(AtomicU64);

    impl Meter for Sum {
        fn take(&self, bytes: u64) -> Result<(), Status> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn the_innermost_meter_counts() {
        let sum = || Arc::new(Sum(AtomicU64::new(0)));
        let (outer, inner) = (sum(), sum());
        let (outer_meter, inner_meter): (Arc<dyn Meter>, Arc<dyn Meter>) =
            (Arc::<Sum>::clone(&outer), Arc::<Sum>::clone(&inner));
        take(1).unwrap();
        metered(&outer_meter, || {
            take(10).unwrap();
            metered(&inner_meter, || take(100).unwrap());
            take(1000).unwrap();
        });
        take(1).unwrap();
        let elsewhere = metered(&outer_meter, || with_meter(|| take(10_000)));
        std::thread::spawn(elsewhere).join().unwrap().unwrap();
        assert_eq!(outer.0.load(Ordering::Relaxed), 11_010);
        assert_eq!(inner.0.load(Ordering::Relaxed), 100);
    }
}
