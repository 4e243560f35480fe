//! Series as text, batch by batch.

use oxtsdb_client::FoundSeries;

use super::Format;

/// The text of a series with a UID that has no name.
const UNNAMED: &str = "(a UID has no name)";

/// Writes series in a format.
#[derive(Debug)]
pub(super) struct Writer {
    format: Format,
    count: u64,
}

impl Writer {
    pub(super) const fn new(format: Format) -> Self {
        Self { format, count: 0 }
    }

    /// Series so far.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The text of more series.
    ///
    /// # Errors
    ///
    /// Never: memory can be written.
    pub(super) fn series(&mut self, series: &[FoundSeries]) -> anyhow::Result<String> {
        let is_first = self.count == 0;
        self.count += series.len() as u64;
        Ok(match self.format {
            Format::Text => series.iter().map(line).collect(),
            Format::Json => {
                let elements: Vec<String> = series.iter().map(element).collect();
                let before = if is_first { "[" } else { ",\n" };
                format!("{before}{}", elements.join(",\n"))
            }
            Format::Csv => csv(series, is_first)?,
        })
    }

    /// The text after the last series.
    pub(super) fn end(&self) -> String {
        match self.format {
            Format::Json if self.count == 0 => "[]\n".to_owned(),
            Format::Json => "]\n".to_owned(),
            Format::Csv if self.count == 0 => "tsuid,metric,tags\n".to_owned(),
            Format::Text | Format::Csv => String::new(),
        }
    }
}

/// TSUID, metric and tags.
fn texts(series: &FoundSeries) -> [String; 3] {
    let (metric, tags) = match &series.name {
        Some(name) => {
            let tags: Vec<String> = name.tags().map(|(key, value)| format!("{key}={value}")).collect();
            (name.metric().to_owned(), tags.join(" "))
        }
        None => (UNNAMED.to_owned(), String::new()),
    };
    [hex::encode_upper(&series.tsuid), metric, tags]
}

fn line(series: &FoundSeries) -> String {
    texts(series).join("\t") + "\n"
}

fn element(series: &FoundSeries) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let tsuid = quoted(&hex::encode_upper(&series.tsuid));
    let Some(name) = &series.name else {
        return format!("{{\"tsuid\":{tsuid}}}");
    };
    let tags = name
        .tags()
        .map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)));
    format!(
        "{{\"tsuid\":{tsuid},\"metric\":{},\"tags\":{{{}}}}}",
        quoted(name.metric()),
        tags.collect::<Vec<_>>().join(",")
    )
}

fn csv(series: &[FoundSeries], with_header: bool) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if with_header {
        writer.write_record(["tsuid", "metric", "tags"])?;
    }
    for series in series {
        writer.write_record(texts(series))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::SeriesName;

    use super::*;

    fn written(format: Format) -> String {
        let series = |number, name| FoundSeries {
            tsuid: vec![0, number].into(),
            name,
        };
        let name = SeriesName::new("m", [("host", "a"), ("dc", "b")]);
        let mut writer = Writer::new(format);
        let mut text = writer.series(&[series(1, Some(name))]).unwrap();
        text += &writer.series(&[series(255, None)]).unwrap();
        text + &writer.end()
    }

    #[test]
    fn batches_are_one_text() {
        assert_eq!(
            written(Format::Text),
            "0001\tm\thost=a dc=b\n00FF\t(a UID has no name)\t\n"
        );
        assert_eq!(
            written(Format::Csv),
            "tsuid,metric,tags\n0001,m,host=a dc=b\n00FF,(a UID has no name),\n"
        );
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json)).unwrap();
        assert_eq!(
            json,
            serde_json::json!([{"tsuid": "0001", "metric": "m", "tags": {"host": "a", "dc": "b"}}, {"tsuid": "00FF"}])
        );
    }

    #[test]
    fn nothing_is_a_text_of_the_format() {
        for (format, expected) in [
            (Format::Text, ""),
            (Format::Csv, "tsuid,metric,tags\n"),
            (Format::Json, "[]\n"),
        ] {
            assert_eq!(Writer::new(format).end(), expected);
        }
    }
}
