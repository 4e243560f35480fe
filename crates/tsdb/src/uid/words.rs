//! Arguments that may begin with a kind.

use oxtsdb_client::UidKind;

/// The kind, if the first of several words is one, otherwise all kinds; and the other words.
pub(super) fn kinds_and_rest(words: &[String]) -> (Vec<UidKind>, &[String]) {
    if let [first, rest @ ..] = words
        && !rest.is_empty()
        && let Ok(kind) = first.parse()
    {
        return (vec![kind], rest);
    }
    (UidKind::ALL.to_vec(), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_kind_precedes_other_words() {
        let tagk = words("tagk host 000001");
        assert_eq!(kinds_and_rest(&tagk), (vec![UidKind::Tagk], &tagk[1..]));
        let names = words("host tagk");
        assert_eq!(kinds_and_rest(&names), (UidKind::ALL.to_vec(), &names[..]));
        let alone = words("metrics");
        assert_eq!(
            kinds_and_rest(&alone),
            (UidKind::ALL.to_vec(), &alone[..]),
            "a name then"
        );
    }
}
