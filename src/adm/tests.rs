use super::*;

fn call(words: &[&str]) -> (Outcome, String) {
    let mut out = Vec::new();
    let outcome = dispatch(&mut Parser::from_args(words), "mudevadm", &Roots::default(), &mut out);
    (outcome, String::from_utf8(out).expect("text"))
}

#[test]
fn every_subcommand_has_help_and_is_in_the_list() {
    let (_, list) = call(&["--help"]);
    for verb in VERBS {
        assert!(list.contains(&format!("  {} ", verb.name)), "{}", verb.name);
        for option in ["--help", "-h"] {
            let (outcome, help) = call(&[verb.name, option]);
            assert_eq!(outcome, Ok(ExitCode::SUCCESS), "{}", verb.name);
            assert!(help.starts_with(&format!("mudevadm {}", verb.name)), "{help}");
            assert!(help.contains("--help"), "{help}");
        }
        assert!(!LATER.contains(&verb.name), "{}", verb.name);
    }
}

/// The long options that a help names in its table.
fn long_options(help: &str) -> impl Iterator<Item = &str> {
    let names = |line| str::split_whitespace(line).take_while(|word| word.starts_with('-'));
    help.lines()
        .filter(|line| line.starts_with("  -") || line.starts_with("     --"))
        .flat_map(names)
        .filter_map(|word| word.strip_prefix("--")?.split(['=', '[']).next())
}

#[test]
fn every_long_option_is_known_for_its_prefixes() {
    for verb in VERBS {
        for name in long_options(verb.help) {
            let (outcome, _) = call(&[verb.name, &format!("--{name}x")]);
            let text = format!("{outcome:?}");
            assert!(text.contains(&format!("is '--{name}' meant?")), "{} --{name}: {text}", verb.name);
        }
    }
    assert_eq!(call(&["--ver"]), (Ok(ExitCode::SUCCESS), "255\n".to_owned()));
    assert_eq!(call(&["--deb", "info", "--vers"]), (Ok(ExitCode::SUCCESS), "255\n".to_owned()));
    let (outcome, _) = call(&["trigger", "--dry", "--init"]);
    let text = "trigger: option '--init' is ambiguous: '--initialized-match', '--initialized-nomatch'";
    assert_eq!(outcome, Err(Stop::failed(text)));
}

#[test]
fn the_version_is_a_bare_number() {
    for words in [&["--version"][..], &["-V"], &["version"], &["info", "-V"]] {
        assert_eq!(call(words), (Ok(ExitCode::SUCCESS), "255\n".to_owned()), "{words:?}");
    }
}

#[test]
fn without_a_subcommand_that_is_known_there_is_an_error() {
    for words in [&[][..], &["frob"], &["--frob"], &["hwdb", "--update"]] {
        assert!(matches!(call(words), (Err(Stop::Failed(_)), _)), "{words:?}");
    }
    let (Err(Stop::Failed(text)), _) = call(&["wait", "/dev/x"]) else { panic!("wait is written now") };
    assert!(text.contains("not written yet"), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure_of_ours() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let outcome = dispatch(&mut Parser::from_args(["version"]), "mudevadm", &Roots::default(), &mut Closed);
    assert_eq!(outcome, Err(Stop::ReaderGone));
}

#[test]
fn json_is_short_or_pretty() {
    let write = |text: &str| {
        let mut out = Vec::new();
        Json::parse(text).unwrap().unwrap().write(&mut out, &[1, 2]).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!((&*write("short"), &*write("pretty")), ("[1,2]\n", "[\n\t1,\n\t2\n]\n"));
    assert_eq!(Json::parse("off"), Ok(None));
    assert!(Json::parse("yes").is_err());
}
