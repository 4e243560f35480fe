//! Edits of definitions and rules, as OpenTSDB merges them. Pure.
//!
//! A field that is absent, or that has its default (an empty text, 0), is not sent: POST keeps what is stored. PUT
//! replaces all fields, those that are not sent by their defaults.
//!
//! Source: OpenTSDB 2.4, `Tree.copyChanges`, `TreeRule.copyChanges`.

use oxtsdb_schema::tree::{RuleDocument, RuleType, TreeDocument, TreeId};

use super::error::TreeError;
use super::rule::MAX_TEXT_BYTES;

/// The treatment of fields that were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditMode {
    /// They are kept.
    Merge,
    /// They get their defaults.
    Replace,
}

/// Fields of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeEdit {
    /// Name; an edited tree may have an empty one.
    pub name: Option<String>,
    /// One line.
    pub description: Option<String>,
    /// Longer text.
    pub notes: Option<String>,
    /// As [`TreeDocument::strict_match`].
    pub strict_match: Option<bool>,
    /// As [`TreeDocument::enabled`].
    pub enabled: Option<bool>,
    /// As [`TreeDocument::store_failures`].
    pub store_failures: Option<bool>,
}

impl TreeEdit {
    /// Whether OpenTSDB sees no change, whatever is stored: empty texts count as not sent.
    pub fn is_empty(&self) -> bool {
        let is_sent = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let flags = [self.strict_match, self.enabled, self.store_failures];
        ![&self.name, &self.description, &self.notes]
            .into_iter()
            .any(is_sent)
            && flags.iter().all(Option::is_none)
    }

    /// The definition after the edit.
    ///
    /// # Errors
    ///
    /// If a text is too long.
    pub fn apply(&self, stored: &TreeDocument, mode: EditMode) -> Result<TreeDocument, TreeError> {
        let base = match mode {
            EditMode::Merge => stored.clone(),
            EditMode::Replace => TreeDocument {
                created: stored.created,
                ..TreeDocument::default()
            },
        };
        let edited = TreeDocument {
            name: self.name.clone().unwrap_or(base.name),
            description: self.description.clone().unwrap_or(base.description),
            notes: self.notes.clone().unwrap_or(base.notes),
            strict_match: self.strict_match.unwrap_or(base.strict_match),
            created: base.created,
            enabled: self.enabled.unwrap_or(base.enabled),
            store_failures: self.store_failures.unwrap_or(base.store_failures),
        };
        for (part, text) in [
            ("name", &edited.name),
            ("description", &edited.description),
            ("notes", &edited.notes),
        ] {
            let length = text.len();
            if length > MAX_TEXT_BYTES {
                return Err(TreeError::TextTooLong { part, length });
            }
        }
        Ok(edited)
    }
}

/// Fields of a rule, and its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleEdit {
    /// The level of the rule, from 0.
    pub level: i32,
    /// The order of the rule on its level, from 0.
    pub order: i32,
    /// The type; a rule that is not stored needs one.
    pub rule_type: Option<RuleType>,
    /// As [`RuleDocument::field`].
    pub field: Option<String>,
    /// As [`RuleDocument::regex`].
    pub regex: Option<String>,
    /// As [`RuleDocument::separator`].
    pub separator: Option<String>,
    /// One line.
    pub description: Option<String>,
    /// Longer text.
    pub notes: Option<String>,
    /// As [`RuleDocument::custom_field`].
    pub custom_field: Option<String>,
    /// As [`RuleDocument::regex_group_idx`].
    pub regex_group_idx: Option<i32>,
    /// As [`RuleDocument::display_format`].
    pub display_format: Option<String>,
}

/// The rule after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditedRule {
    /// The edit sends no field, or merges to the stored rule.
    Unchanged,
    /// Neither the edit nor the stored rule has a type.
    NoType,
    /// The rule to store. It is not checked.
    Changed(Box<RuleDocument>),
}

impl RuleEdit {
    /// The rule after the edit.
    pub fn apply(&self, tree: TreeId, stored: Option<&RuleDocument>, mode: EditMode) -> EditedRule {
        let texts = [
            &self.field,
            &self.regex,
            &self.separator,
            &self.description,
            &self.notes,
            &self.custom_field,
            &self.display_format,
        ];
        let is_sent = texts.into_iter().flatten().any(|text| !text.is_empty())
            || self.rule_type.is_some()
            || self.regex_group_idx.is_some_and(|index| index != 0)
            || (self.level, self.order) != (0, 0);
        if !is_sent {
            return EditedRule::Unchanged;
        }
        let kept = stored.filter(|_| mode == EditMode::Merge);
        let Some(rule_type) = self.rule_type.or(kept.map(|rule| rule.rule_type)) else {
            return EditedRule::NoType;
        };
        let mut rule = kept
            .cloned()
            .unwrap_or_else(|| RuleDocument::new(tree, rule_type));
        rule.rule_type = rule_type;
        (rule.level, rule.order) = (self.level, self.order);
        for (text, sent) in [
            (&mut rule.field, &self.field),
            (&mut rule.regex, &self.regex),
            (&mut rule.separator, &self.separator),
            (&mut rule.description, &self.description),
            (&mut rule.notes, &self.notes),
            (&mut rule.custom_field, &self.custom_field),
            (&mut rule.display_format, &self.display_format),
        ] {
            if let Some(sent) = sent.as_ref().filter(|sent| !sent.is_empty()) {
                text.clone_from(sent);
            }
        }
        if let Some(index) = self.regex_group_idx.filter(|index| *index != 0) {
            rule.regex_group_idx = index;
        }
        match stored {
            Some(stored) if mode == EditMode::Merge && *stored == rule => EditedRule::Unchanged,
            _ => EditedRule::Changed(Box::new(rule)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_merge_keeps_what_is_not_sent_and_a_replacement_resets_it() {
        let stored = TreeDocument {
            name: "n".into(),
            notes: "notes".into(),
            enabled: true,
            created: 7,
            ..TreeDocument::default()
        };
        let edit = TreeEdit {
            description: text("d"),
            strict_match: Some(true),
            ..TreeEdit::default()
        };
        let merged = edit.apply(&stored, EditMode::Merge).unwrap();
        let expected = TreeDocument {
            description: "d".into(),
            strict_match: true,
            ..stored.clone()
        };
        assert_eq!(merged, expected);
        let replaced = edit.apply(&stored, EditMode::Replace).unwrap();
        let expected = TreeDocument {
            description: "d".into(),
            strict_match: true,
            created: 7,
            ..TreeDocument::default()
        };
        assert_eq!(replaced, expected);
        assert!(
            TreeEdit {
                name: text(""),
                ..TreeEdit::default()
            }
            .is_empty()
                && !edit.is_empty()
        );
        let long = TreeEdit {
            notes: text(&"n".repeat(MAX_TEXT_BYTES + 1)),
            ..TreeEdit::default()
        };
        assert!(matches!(
            long.apply(&stored, EditMode::Merge),
            Err(TreeError::TextTooLong { part: "notes", .. })
        ));
    }

    #[test]
    fn rules_are_merged_as_in_opentsdb() {
        fn apply(edit: &RuleEdit, stored: Option<&RuleDocument>, mode: EditMode) -> EditedRule {
            edit.apply(TreeId::FIRST, stored, mode)
        }
        let edit = RuleEdit {
            rule_type: Some(RuleType::Tagk),
            field: text("host"),
            ..RuleEdit::default()
        };
        let mut stored = RuleDocument::new(TreeId::FIRST, RuleType::Tagk);
        stored.field = "host".into();
        assert_eq!(
            apply(&edit, None, EditMode::Merge),
            EditedRule::Changed(Box::new(stored.clone()))
        );
        assert_eq!(
            apply(&edit, Some(&stored), EditMode::Merge),
            EditedRule::Unchanged
        );
        assert_eq!(
            apply(&edit, Some(&stored), EditMode::Replace),
            EditedRule::Changed(Box::new(stored.clone()))
        );
        stored.notes = "notes".into();
        let edit = RuleEdit {
            field: text(""),
            regex: text("a"),
            ..RuleEdit::default()
        };
        let EditedRule::Changed(merged) = apply(&edit, Some(&stored), EditMode::Merge) else {
            panic!("the regex is new");
        };
        assert_eq!(
            (&*merged.field, &*merged.regex, &*merged.notes),
            ("host", "a", "notes")
        );
        assert_eq!(apply(&edit, Some(&stored), EditMode::Replace), EditedRule::NoType);
        assert_eq!(
            apply(&RuleEdit::default(), None, EditMode::Merge),
            EditedRule::Unchanged
        );
        let level = RuleEdit {
            level: 1,
            ..RuleEdit::default()
        };
        assert_eq!(apply(&level, None, EditMode::Merge), EditedRule::NoType);
    }
}
