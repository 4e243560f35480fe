//! The page at `/`, and its files below `/s`: they are parts of the program, and come from no other host.
//!
//! Files are plain HTML, CSS and JavaScript modules (`page/`). The page calls the API below `/api` as any other client
//! does, with the rights of the token that is entered on it.

use http::header::{CACHE_CONTROL, HeaderValue};

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::pages;
use crate::http::reply::Reply;

const INDEX: &[u8] = include_bytes!("page/index.html");

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=UTF-8");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=UTF-8");
const SCRIPT: HeaderValue = HeaderValue::from_static("text/javascript; charset=UTF-8");

/// Files of another version of the program do not work together.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("page/", $name)))),*]
    };
}

/// The files by their names, except for the page itself.
static FILES: &[(&str, &[u8])] = files!(
    "annotation-view.js"
    "api.js"
    "colors.js"
    "combobox.js"
    "csv.js"
    "dom.js"
    "expression.js"
    "json-stream.js"
    "legend.js"
    "link.js"
    "main.js"
    "metric-text.js"
    "plot.js"
    "query-run.js"
    "query-view.js"
    "range-bar.js"
    "reduce.js"
    "server-view.js"
    "style.css"
    "sub-query-form.js"
    "suggest.js"
    "ticks.js"
    "time.js"
    "tree-view.js"
    "uid-view.js"
    "value-table.js"
);

/// `/`: the page. All methods.
pub(crate) async fn index(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Ok(Reply::file(INDEX, HTML).with_header(CACHE_CONTROL, NO_CACHE))
}

/// `/s/…`: a file of the page. All methods.
pub(crate) async fn file(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let name = request.path.strip_prefix("/s/").unwrap_or_default();
    let Some((name, content)) = FILES.iter().find(|(file, _)| *file == name) else {
        return pages::no_file(request).await;
    };
    let content_type = if name.ends_with(".css") { CSS } else { SCRIPT };
    Ok(Reply::file(content, content_type).with_header(CACHE_CONTROL, NO_CACHE))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The most bytes of all files together.
    const MAX_BYTES: usize = 150_000;

    #[test]
    fn the_program_has_every_file_of_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page");
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".js") || name.ends_with(".css"))
            .collect();
        names.sort_unstable();
        let embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(embedded, names);
        let bytes = FILES.iter().map(|(_, content)| content.len()).sum::<usize>() + INDEX.len();
        assert!(bytes <= MAX_BYTES, "{bytes}");
    }

    #[test]
    fn the_page_has_no_script_or_style_of_its_own() {
        let page = str::from_utf8(INDEX).unwrap();
        assert!(page.contains("<script type=\"module\" src=\"/s/main.js\"></script>"));
        for forbidden in ["<style", " style=", "onload=", "javascript:", "https://", "//cdn"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
