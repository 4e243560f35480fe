//! Streams of results.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use oxtsdb_proto::Rpc;
use prost::Message;
use tracing::warn;

use crate::Error;
use crate::call::{Connection, Messages};

/// Whether a resumable stream has more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Unless it ends.
    More,
    /// The request is fulfilled.
    Complete,
}

/// Results as they arrive. Dropping the stream cancels its call.
///
/// An error ends the stream: the items before it are not the whole result. [`Error::is_retry_safe`] says whether
/// the call can be repeated, from its start.
pub struct Results<T>(BoxStream<'static, Result<T, Error>>);

impl<T> fmt::Debug for Results<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").finish_non_exhaustive()
    }
}

impl<T> Stream for Results<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<T: Send + 'static> Results<T> {
    /// The next result; `None` after the last.
    ///
    /// # Errors
    ///
    /// The error that the stream ended with.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        self.0.try_next().await
    }

    /// All results that are left.
    ///
    /// # Errors
    ///
    /// The error that the stream ended with.
    pub async fn collect(self) -> Result<Vec<T>, Error> {
        self.0.try_collect().await
    }

    /// A stream of messages; `convert` turns each into any number of results.
    pub(crate) fn from_messages<R, I>(
        messages: Messages<R>,
        mut convert: impl FnMut(R) -> Result<I, Error> + Send + 'static,
    ) -> Self
    where
        R: Message + Default + 'static,
        I: IntoIterator<Item = T> + Send + 'static,
        I::IntoIter: Send,
    {
        let messages = stream::try_unfold(messages, async |mut messages| {
            Ok(messages.next().await?.map(|message| (message, messages)))
        });
        let results = messages
            .and_then(move |message| std::future::ready(convert(message)))
            .map_ok(|results| stream::iter(results.into_iter().map(Ok)))
            .try_flatten();
        Self(results.boxed())
    }

    /// The stream, which fails if it ends with another result than one that `is_last`.
    pub(crate) fn ending_with(self, is_last: fn(&T) -> bool) -> Self {
        let complete = stream::try_unfold((self.0, false), move |(mut results, complete)| async move {
            match results.try_next().await? {
                Some(result) => {
                    let last = is_last(&result);
                    Ok(Some((result, (results, last))))
                }
                None if complete => Ok(None),
                None => Err(Error::protocol("the stream ended before its last frame")),
            }
        });
        Self(complete.boxed())
    }

    #[cfg(test)]
    pub(crate) fn from_stream(results: impl Stream<Item = Result<T, Error>> + Send + 'static) -> Self {
        Self(results.boxed())
    }

    /// Messages of a call that is resumed where it broke; `advance` notes in its request which message was received
    /// last.
    pub(crate) fn resumed<Q: Rpc<Response = T> + 'static>(
        connection: Connection,
        request: Q,
        advance: impl Fn(&mut Q, &T) -> Progress + Send + Sync + 'static,
    ) -> Self
    where
        T: Message + Default,
    {
        let start = Resumed {
            connection,
            request,
            advance,
            messages: None,
            progress: Progress::More,
            begun: false,
            resumptions: 0,
        };
        Self(
            stream::try_unfold(start, async |mut state| {
                Ok(state.next().await?.map(|message| (message, state)))
            })
            .boxed(),
        )
    }
}

impl<T: Send + 'static> Results<T> {
    /// The same stream with each result converted.
    pub(crate) fn convert<U: Send + 'static>(
        self,
        mut convert: impl FnMut(T) -> Result<U, Error> + Send + 'static,
    ) -> Results<U> {
        let converted = self.0.and_then(move |result| std::future::ready(convert(result)));
        Results(converted.boxed())
    }
}

/// How often in a row a call is resumed without a new message.
const RESUMPTIONS: u32 = 5;

/// The pause before the first of them; each following is longer by as much.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of [`Results::resumed`].
struct Resumed<Q, T, A> {
    connection: Connection,
    request: Q,
    advance: A,
    messages: Option<Messages<T>>,
    progress: Progress,
    /// Whether a message arrived: a call that fails before is not resumed.
    begun: bool,
    /// Resumptions since the last message.
    resumptions: u32,
}

impl<Q, T, A> Resumed<Q, T, A>
where
    Q: Rpc<Response = T>,
    A: Fn(&mut Q, &T) -> Progress,
    T: Message + Default,
{
    async fn next(&mut self) -> Result<Option<T>, Error> {
        while self.progress == Progress::More {
            match self.message().await {
                Ok(Some(message)) => {
                    self.progress = (self.advance)(&mut self.request, &message);
                    self.begun = true;
                    self.resumptions = 0;
                    return Ok(Some(message));
                }
                Err(error) if self.can_resume(&error) => {
                    warn!(%error, "stream of results broke, resuming");
                    self.resumptions += 1;
                    self.messages = None;
                    tokio::time::sleep(PAUSE * self.resumptions).await;
                }
                end => return end,
            }
        }
        Ok(None)
    }

    async fn message(&mut self) -> Result<Option<T>, Error> {
        let messages = match &mut self.messages {
            Some(messages) => messages,
            None => self.messages.insert(self.connection.stream(&self.request).await?),
        };
        messages.next().await
    }

    /// A server may limit a single call, and a long stream takes several; the client's own deadline is that
    /// of all of them.
    fn can_resume(&self, error: &Error) -> bool {
        let is_own_deadline = matches!(error, Error::DeadlineExceeded);
        error.is_retry_safe() && !is_own_deadline && self.begun && self.resumptions < RESUMPTIONS
    }
}
