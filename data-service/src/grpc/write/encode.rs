//! Encoding of points, in the compute pool if they are many.

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::status as status_with;
use oxtsdb_resources::ComputePool;
use tonic::{Code, Status};

/// Points that are encoded inline, in a millisecond or two.
const INLINE_POINTS: usize = 20_000;

/// Runs a function that encodes `points`.
///
/// # Errors
///
/// Errors of the function; INTERNAL if it panics.
pub(in crate::grpc) async fn run_encoder<T: Send + 'static>(
    points: usize,
    compute: &ComputePool,
    encode: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    if points <= INLINE_POINTS {
        return encode();
    }
    in_pool(compute, encode).await
}

/// Runs a function in the compute pool.
///
/// # Errors
///
/// Errors of the function; INTERNAL if it panics.
pub(super) async fn in_pool<T: Send + 'static>(
    compute: &ComputePool,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    compute.run(work).await.unwrap_or_else(|panicked| {
        let message = panicked.to_string();
        Err(status_with(Code::Internal, ErrorReason::Internal, message, &[]))
    })
}
