//! Guesses which of the known words somebody meant who wrote an unknown one.

/// The known word that differs least, if it differs by at most two letters and half of what is written.
pub fn nearest<'a>(written: &[u8], known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|known| (distance(written, known.as_bytes()), known))
        .min()
        .filter(|(distance, _)| *distance <= 2.min(written.len() / 2))
        .map(|(_, known)| known)
}

/// How many edits turn one word into the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    if a.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_letters_may_differ_and_half_of_the_word() {
        for (written, expected) in [
            ("SUBSYTEM", Some("SUBSYSTEM")),
            ("SUBSYSTEMSS", Some("SUBSYSTEM")),
            ("TAC", Some("TAG")),
            ("T", None),
            ("", None),
            ("FROBNICATE", None),
        ] {
            assert_eq!(nearest(written.as_bytes(), ["TAG", "SUBSYSTEM"]), expected, "{written}");
        }
        assert_eq!(nearest(&[b'x'; 65], ["TAG"]), None);
    }
}
