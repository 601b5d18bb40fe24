//! The tree of devices (interop.md 5.2.4).

use super::super::view::Devices;
use super::super::{Out, Stop};
use super::{lines, write_line};
use bstr::BString;

/// What the branches are drawn with.
struct Art {
    branch: &'static str,
    last: &'static str,
    line: &'static str,
    text: &'static str,
}

const UTF8: Art = Art { branch: "├─", last: "└─", line: "│ ", text: "┆ " };
const ASCII: Art = Art { branch: "|-", last: "`-", line: "| ", text: ": " };

/// Prints these devices, which are in order: a parent comes before those below it.
pub(super) fn print(devices: &Devices, found: Vec<BString>, out: Out) -> Result<(), Stop> {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = locale.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let art = if is_utf8(&locale.unwrap_or_default()) { &UTF8 } else { &ASCII };
    let mut tree = Tree { devices, art, out, prefix: String::new() };
    tree.level(b"", &found)?;
    Ok(writeln!(out, "\n{} items shown.", found.len())?)
}

fn is_utf8(locale: &str) -> bool {
    let charset = locale.split_once('.').map_or("", |(_, charset)| charset).to_ascii_lowercase();
    charset.starts_with("utf-8") || charset.starts_with("utf8")
}

struct Tree<'a, 'o> {
    devices: &'a Devices<'a>,
    art: &'static Art,
    out: &'o mut dyn std::io::Write,
    /// What stands before every line of the level.
    prefix: String,
}

impl Tree<'_, '_> {
    /// Devices below `above`, each with those below it.
    fn level(&mut self, above: &[u8], mut found: &[BString]) -> Result<(), Stop> {
        while let Some((first, rest)) = found.split_first() {
            let is_below = |devpath: &BString| {
                devpath.strip_prefix(first.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
            };
            let (below, others) = rest.split_at(rest.iter().take_while(|f| is_below(f)).count());
            self.node(above, first, below, others.is_empty())?;
            found = others;
        }
        Ok(())
    }

    fn node(&mut self, above: &[u8], device: &BString, below: &[BString], is_last: bool) -> Result<(), Stop> {
        let Art { branch, last, line, text } = self.art;
        let name = device.strip_prefix(above).unwrap_or(device);
        // The slash between parent and name; at the top it belongs to the path.
        let name = if above.is_empty() { name } else { &name[1.min(name.len())..] };
        let drawn = if is_last { last } else { branch };
        write_line(self.out, &[self.prefix.as_bytes(), drawn.as_bytes(), name])?;
        let length = self.prefix.len();
        self.prefix.push_str(if is_last { "  " } else { line });
        for record_line in lines::of(&self.devices.describe(device)) {
            write_line(self.out, &[self.prefix.as_bytes(), text.as_bytes(), &record_line])?;
        }
        self.level(device, below)?;
        self.prefix.truncate(length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_what_can_be_drawn() {
        for (locale, utf8) in [
            ("C.UTF-8", true),
            ("de_DE.utf8@euro", true),
            ("C", false),
            ("de_DE.ISO-8859-1", false),
            ("", false),
        ] {
            assert_eq!(is_utf8(locale), utf8, "{locale}");
        }
    }
}
