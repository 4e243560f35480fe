//! Update masks: which fields of a resource a call changes.

use prost_types::FieldMask;
use tonic::Status;

use crate::error::invalid_field;

/// Returns the `known` fields that a call changes: the fields of the mask, or without a mask the fields for which
/// `is_set` holds. The mask `*` selects all. In the order of `known`, each once.
///
/// # Errors
///
/// INVALID_ARGUMENT (INVALID_FIELD) for a path that is not known, which may be an output only field.
pub fn fields(
    mask: Option<&FieldMask>,
    known: &[&'static str],
    is_set: impl Fn(&str) -> bool,
) -> Result<Vec<&'static str>, Status> {
    let Some(mask) = mask else {
        return Ok(known.iter().copied().filter(|field| is_set(field)).collect());
    };
    for (index, path) in mask.paths.iter().enumerate() {
        if path != "*" && !known.contains(&path.as_str()) {
            return Err(invalid_field(
                &format!("update_mask.paths[{index}]"),
                format!(
                    "`{path}` is unknown or output only, expected *, {}",
                    known.join(", ")
                ),
            ));
        }
    }
    let is_selected = |field: &&str| mask.paths.iter().any(|path| path == "*" || path == field);
    Ok(known.iter().copied().filter(is_selected).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["notes", "created"];

    fn selected(paths: &[&str]) -> Result<Vec<&'static str>, String> {
        let mask = FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        fields(Some(&mask), KNOWN, |_| true).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn without_a_mask_the_fields_that_are_set_are_changed() {
        assert_eq!(
            fields(None, KNOWN, |field| field == "created").unwrap(),
            ["created"]
        );
    }

    #[test]
    fn a_mask_selects_known_fields() {
        assert_eq!(selected(&["created", "created"]), Ok(vec!["created"]));
        assert_eq!(selected(&["*"]), Ok(vec!["notes", "created"]));
        assert_eq!(selected(&[]), Ok(vec![]));
        assert_eq!(
            selected(&["notes", "etag"]),
            Err(
                "update_mask.paths[1]: `etag` is unknown or output only, expected *, notes, created"
                    .to_owned()
            )
        );
    }
}
