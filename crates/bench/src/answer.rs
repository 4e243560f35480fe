//! The figures of an HTTP response that benchmarks compare.

use anyhow::Context as _;
use serde_json::Value;

/// Number and sum of the points of a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) points: usize,
    pub(crate) sum: f64,
}

impl Answer {
    /// Whether they differ only by the order in which doubles were added.
    pub(crate) fn equals(self, other: Self) -> bool {
        let difference = (self.sum - other.sum).abs();
        self.points == other.points && difference <= 1e-9 * self.sum.abs().max(1.0)
    }

    /// The points of a response: of OpenTSDB's `/api/query`, of `/api/v1/export` (one series) or of `query_range`.
    pub(crate) fn from_response(response: &Value) -> anyhow::Result<Self> {
        let mut values: Vec<&Value> = Vec::new();
        if let Some(groups) = response.as_array() {
            for group in groups {
                values.extend(group["dps"].as_object().context("no `dps`")?.values());
            }
        } else if let Some(of_series) = response["values"].as_array() {
            values.extend(of_series);
        } else {
            let series = response["data"]["result"]
                .as_array()
                .context("no `data.result`")?;
            for one in series {
                let points = one["values"].as_array().context("no `values`")?;
                values.extend(points.iter().map(|point| &point[1]));
            }
        }
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        };
        let mut sum = 0.0;
        for value in &values {
            sum += number(value).with_context(|| format!("`{value}` is no number"))?;
        }
        Ok(Self {
            points: values.len(),
            sum,
        })
    }
}

/// Text as part of a URL's query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:*()".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn responses_of_all_forms_are_counted_and_added() {
        let expected = Answer { points: 2, sum: 5.5 };
        for response in [
            json!([{"metric": "m", "dps": {"10": 2, "20": 3.5}}]),
            json!([{"dps": {"10": 2}}, {"dps": {"10": 3.5}}]),
            json!({"metric": {}, "values": [2, 3.5], "timestamps": [10, 20]}),
            json!({"data": {"result": [{"values": [[10, "2"], [20, "3.5"]]}]}}),
        ] {
            assert_eq!(Answer::from_response(&response).unwrap(), expected, "{response}");
        }
        Answer::from_response(&json!({"error": "no"})).unwrap_err();
        Answer::from_response(&json!([{"dps": {"10": "NaN?"}}])).unwrap_err();
        let later = Answer {
            sum: 5.5 + 1e-12,
            ..expected
        };
        assert!(expected.equals(later));
        assert!(!expected.equals(Answer { sum: 5.6, ..expected }));
    }
}
