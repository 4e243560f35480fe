//! `/api/query`: questions in OpenTSDB's JSON or in a query string, answers in its JSON.
//!
//! The status is decided when the whole answer is there, so an error in the middle is still an
//! error for the client. Groups are written as the engine brings them; what is kept is the JSON.
//!
//! `showStats` and `showSummary` tell this server's own figures, which are fewer than OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleQuery`, `HttpJsonSerializer.formatQueryAsyncV1`.

mod failure;
mod parse;
mod render;

use futures::StreamExt as _;

use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;
use crate::query::time::now_ms;
use crate::query::{Engine, Frame};

use parse::Question;

/// What all queries of this server have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryRules {
    /// Take the newest of several values for one instant, in place of failing.
    pub(crate) fix_duplicates: bool,
}

/// GET.
pub(crate) async fn get(
    engine: &Engine,
    rules: QueryRules,
    parameters: &Parameters,
) -> Result<Reply, HttpError> {
    answer(engine, parse::from_parameters(parameters, rules, now_ms())?).await
}

/// POST.
pub(crate) async fn post(
    engine: &Engine,
    rules: QueryRules,
    parameters: &Parameters,
    content: &[u8],
) -> Result<Reply, HttpError> {
    answer(engine, parse::from_json(content, parameters, rules, now_ms())?).await
}

async fn answer(engine: &Engine, question: Question) -> Result<Reply, HttpError> {
    let mut answer = render::Answer::new(&question);
    let mut frames = engine.run(question.spec, None);
    while let Some(frame) = frames.next().await {
        match frame.map_err(|error| failure::of_query(&error))? {
            Frame::Group(group) => answer.add(&group),
            Frame::Done { .. } => {}
            Frame::Statistics(statistics) => return Ok(Reply::json(answer.finish(&statistics))),
        }
    }
    // An answer without its last frame is not whole.
    Err(HttpError::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        "the query ended without its last frame",
    ))
}

#[cfg(test)]
mod tests;
