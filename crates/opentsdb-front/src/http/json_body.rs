//! JSON bodies of queries: bounded, charged for their parsed form, and parsed in the computation pool if they are
//! large.

use bytes::Bytes;
use oxtsdb_resources::ComputePool;

use crate::http::error::HttpError;
use crate::http::query::bounded::count_checked;
use crate::http::request_body::RequestBody;

/// Bodies up to this size are parsed inline.
const INLINE_BYTES: usize = 64 << 10;

/// Estimated memory of a parsed JSON value, beside its bytes: a string, and its form in the query.
const VALUE_BYTES: usize = 100;

/// Parses a body. The parsed form is charged before, and stays charged until the body is dropped.
///
/// # Errors
///
/// 400 for too many values, 503 if the memory pool is exhausted, errors of `parse`.
pub(crate) async fn parsed<T: Send + 'static>(
    body: &mut RequestBody,
    compute: &ComputePool,
    parse: impl FnOnce(&[u8]) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    let content = body.bytes.clone();
    let compute = &body.compute(compute);
    let values = read_content(content.clone(), compute, count_checked).await?;
    body.charge(values * VALUE_BYTES + content.len()).await?;
    read_content(content, compute, parse).await
}

/// Reads content that is charged, in the computation pool if it is large.
///
/// # Errors
///
/// Errors of `read`.
pub(crate) async fn read_content<T: Send + 'static>(
    content: Bytes,
    compute: &ComputePool,
    read: impl FnOnce(&[u8]) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    if content.len() <= INLINE_BYTES {
        return read(&content);
    }
    compute.run(move || read(&content)).await?
}

#[cfg(test)]
mod tests;
