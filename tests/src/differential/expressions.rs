//! Random questions to `/api/query/gexp` and `/api/query/exp`.

mod answer;
pub mod calls;
pub mod formulas;
mod known;
pub mod text;

use crate::http::{Answer, Http};

pub use answer::difference;
pub use known::{KNOWN, of};

/// A question as it is sent.
#[derive(Clone, Debug)]
pub struct Question {
    /// Path and query string.
    pub path: String,
    /// The body of a POST; without one it is a GET.
    pub body: Option<String>,
}

impl Question {
    /// Asks.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn ask(&self, http: &Http) -> anyhow::Result<Answer> {
        match &self.body {
            Some(body) => http.post_bytes(&self.path, &[], body.clone().into_bytes()).await,
            None => http.get(&self.path).await,
        }
    }

    /// For a shell: what follows the address of a server.
    pub fn to_curl(&self) -> String {
        match &self.body {
            Some(body) => format!(
                "curl 'HOST:PORT{}' -d '{}'",
                self.path,
                body.replace('\'', "'\\''")
            ),
            None => format!("curl 'HOST:PORT{}'", self.path),
        }
    }
}
