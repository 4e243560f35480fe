//! Text in pages.

/// Text in HTML. OpenTSDB's own texts have `<code>`.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
