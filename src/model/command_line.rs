//! Options on the command line of the daemon and the tool: long ones may be cut short, as getopt_long(3)
//! allows, which scripts make use of.

use super::nearest::nearest;
use lexopt::{Arg, Error, Parser};

/// The long options of a command, without dashes. Names of the same meaning stand in one text with `|`
/// between them; the first is what [`next_arg`] gives.
pub type LongNames = &'static [&'static str];

/// What every command has.
const COMMON: LongNames = &["help", "version"];

/// The next word of the command line. A long option comes under its first name in `known`, whatever
/// prefix or other name of it was written; one that is not known, or may be several, is an error.
pub fn next_arg(parser: &mut Parser, known: &[LongNames]) -> Result<Option<Arg<'static>>, Error> {
    Ok(match parser.next()? {
        Some(Arg::Long(written)) => Some(Arg::Long(resolve(written, known)?)),
        Some(Arg::Short(letter)) => Some(Arg::Short(letter)),
        Some(Arg::Value(word)) => Some(Arg::Value(word)),
        None => None,
    })
}

/// The first name of the one option that `written` begins, or is: an exact name wins.
fn resolve(written: &str, known: &[LongNames]) -> Result<&'static str, Error> {
    let options = || known.iter().chain([&COMMON]).copied().flatten().copied();
    let names = || options().flat_map(|option| option.split('|').map(move |name| (first_name(option), name)));
    if let Some((option, _)) = names().find(|(_, name)| *name == written) {
        return Ok(option);
    }
    let begun: Vec<_> = names().filter(|(_, name)| name.starts_with(written)).collect();
    match begun.first() {
        Some((option, _)) if begun.iter().all(|(other, _)| other == option) => Ok(option),
        Some(_) => {
            let possible: Vec<_> = begun.iter().map(|(_, name)| format!("'--{name}'")).collect();
            Err(format!("option '--{written}' is ambiguous: {}", possible.join(", ")).into())
        }
        None => Err(match nearest(written.as_bytes(), names().map(|(_, name)| name)) {
            Some(name) => format!("invalid option '--{written}'; is '--{name}' meant?").into(),
            None => format!("invalid option '--{written}'").into(),
        }),
    }
}

fn first_name(option: &'static str) -> &'static str {
    option.split('|').next().unwrap_or(option)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[LongNames] =
        &[&["exit", "exit-if-exists", "log-level|log-priority", "property|env"], &["environment"]];

    fn long(word: &str) -> Result<&'static str, String> {
        let mut parser = Parser::from_args([word]);
        match next_arg(&mut parser, KNOWN).map_err(|error| error.to_string())? {
            Some(Arg::Long(name)) => Ok(name),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_prefix_stands_for_the_one_option_that_it_begins() {
        for (word, expected) in [
            ("--exit", "exit"),
            ("--exit-", "exit-if-exists"),
            ("--exit-if-exists", "exit-if-exists"),
            ("--pro", "property"),
            ("--env", "property"),
            ("--envi", "environment"),
            ("--log", "log-level"),
            ("--log-priority", "log-level"),
            ("--h", "help"),
            ("--vers", "version"),
        ] {
            assert_eq!(long(word), Ok(expected), "{word}");
        }
    }

    #[test]
    fn what_stands_for_several_or_none_is_refused_with_what_may_be_meant() {
        for (word, expected) in [
            ("--ex", "option '--ex' is ambiguous: '--exit', '--exit-if-exists'"),
            ("--en", "option '--en' is ambiguous: '--env', '--environment'"),
            ("--exot", "invalid option '--exot'; is '--exit' meant?"),
            ("--helpp", "invalid option '--helpp'; is '--help' meant?"),
            ("--frobnicate", "invalid option '--frobnicate'"),
        ] {
            assert_eq!(long(word), Err(expected.to_owned()), "{word}");
        }
        assert!(long("--=x").is_err());
    }

    #[test]
    fn values_and_short_options_come_as_they_are() {
        let mut parser = Parser::from_args(["--exit-=file", "-e", "word", "--", "--exit"]);
        assert_eq!(next_arg(&mut parser, KNOWN).unwrap(), Some(Arg::Long("exit-if-exists")));
        assert_eq!(parser.value().unwrap(), "file");
        assert_eq!(next_arg(&mut parser, KNOWN).unwrap(), Some(Arg::Short('e')));
        assert_eq!(next_arg(&mut parser, KNOWN).unwrap(), Some(Arg::Value("word".into())));
        assert_eq!(next_arg(&mut parser, KNOWN).unwrap(), Some(Arg::Value("--exit".into())));
        assert_eq!(next_arg(&mut parser, KNOWN).unwrap(), None);
    }
}
