//! What somebody may have meant who wrote a key that there is not.

/// All keys, for the hint.
const KEYS: [&str; 29] = [
    "ACTION",
    "ATTR",
    "ATTRS",
    "CONST",
    "DEVPATH",
    "DRIVER",
    "DRIVERS",
    "ENV",
    "GOTO",
    "GROUP",
    "IMPORT",
    "KERNEL",
    "KERNELS",
    "LABEL",
    "MODE",
    "NAME",
    "OPTIONS",
    "OWNER",
    "PROGRAM",
    "RESULT",
    "RUN",
    "SECLABEL",
    "SUBSYSTEM",
    "SUBSYSTEMS",
    "SYMLINK",
    "SYSCTL",
    "TAG",
    "TAGS",
    "TEST",
];

/// The key that differs least, if it differs by at most two letters and half of what is written.
pub(super) fn nearest_key(key: &[u8]) -> Option<&'static str> {
    let key = key.to_ascii_uppercase();
    KEYS.into_iter()
        .map(|known| (distance(&key, known.as_bytes()), known))
        .min()
        .filter(|(distance, _)| *distance <= 2.min(key.len() / 2))
        .map(|(_, known)| known)
}

/// Edits that make one word of the other.
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
