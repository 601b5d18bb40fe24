use super::super::tree::Tree;
use super::*;

fn from_file(content: &str) -> (Settings, Vec<String>) {
    merge(&Sources { files: vec![("udev.conf".into(), content.into())], ..Sources::default() })
}

#[test]
fn a_file_is_read_as_a_shell_would() {
    let (settings, messages) = from_file(
        "# comment\n\n udev_log=\"debug\" # more\nchildren_max='7'\nexec_delay=2\nevent_timeout=1min\n\
         timeout_signal=SIGTERM\nresolve_names=never\n",
    );
    assert_eq!(messages, [""; 0]);
    let expected = Settings {
        log_level: LevelFilter::Debug,
        children_max: Some(7),
        exec_delay: Duration::from_secs(2),
        event_timeout: Duration::from_secs(60),
        timeout_signal: libc::SIGTERM,
        resolve_names: ResolveNames::Never,
        ..Settings::default()
    };
    assert_eq!(settings, expected);
    for (text, value) in [
        ("a b", "a b"),
        ("\"a # b\"", "a # b"),
        ("a\\ b", "a b"),
        ("'a\\b'", "a\\b"),
        ("a#b", "a#b"),
        ("#", ""),
    ] {
        assert_eq!(unquote(text.as_bytes()), value, "{text}");
    }
}

#[test]
fn each_bad_line_is_one_message_and_changes_nothing() {
    let (settings, messages) =
        from_file("udev_log=loud\nchildren_max=-1\nexec_delay=\nevent_timeout=soon\nfrob=1\nnonsense\n");
    assert_eq!(settings, Settings::default());
    assert_eq!(messages.len(), 5, "{messages:?}");
    assert!(messages[0].starts_with("udev.conf:1: udev_log=loud"), "{messages:?}");
    assert_eq!(from_file("timeout_signal=TERM\ntimeout_signal=nope").0.timeout_signal, libc::SIGTERM);
}

#[test]
fn later_sources_override_earlier_ones() {
    let mut sources = Sources {
        files: vec![
            ("a".into(), "udev_log=err\nevent_timeout=10\nchildren_max=1".into()),
            ("b".into(), "event_timeout=20".into()),
        ],
        ..Sources::default()
    };
    let level = |sources: &Sources| merge(sources).0.log_level;
    assert_eq!(merge(&sources).0.event_timeout, Duration::from_secs(20));
    assert_eq!(level(&sources), LevelFilter::Error);
    sources.udev_log = Some("debug".into());
    assert_eq!(level(&sources), LevelFilter::Debug);
    sources.systemd_log_level = Some("warning".into());
    assert_eq!(level(&sources), LevelFilter::Warn);
    sources.arguments =
        Overrides { log_level: Some(LevelFilter::Debug), children_max: Some(0), ..Overrides::default() };
    assert_eq!((level(&sources), merge(&sources).0.children_max), (LevelFilter::Debug, None));
    sources.command_line = b"udev.log-level=3";
    assert_eq!(level(&sources), LevelFilter::Error);
}

#[test]
fn the_kernel_command_line_has_its_own_names() {
    let line = b"quiet root=udev.x udev.event_timeout=30 udev.exec-delay=1s 'udev.children_max=3' \
        udev.blockdev_read_only udev.trace=no rd.udev.log_priority=debug udev.timeout-signal=9 udev.children_max=4";
    let (settings, messages) = merge(&Sources { command_line: line, ..Sources::default() });
    assert_eq!(messages, [""; 0]);
    assert_eq!(settings.event_timeout, Duration::from_secs(30));
    assert_eq!(settings.exec_delay, Duration::from_secs(1));
    assert_eq!(settings.children_max, Some(4));
    assert!(settings.blockdev_read_only && !settings.trace);
    assert_eq!(settings.log_level, LevelFilter::Info);
    let sources = Sources { command_line: line, in_initrd: true, ..Sources::default() };
    assert_eq!(merge(&sources).0.log_level, LevelFilter::Debug);
    let bad = b"udev.log_level udev.frob=1 udev.event_timeout= udev.trace=x rd.udev.frob";
    let (settings, messages) = merge(&Sources { command_line: bad, ..Sources::default() });
    assert_eq!((settings, messages.len()), (Settings::default(), 4));
    assert_eq!(
        merge(&Sources { command_line: b"udev.trace", ..Sources::default() }).0.log_level,
        LevelFilter::Debug
    );
}

#[test]
fn times_that_do_not_go_together_are_mended() {
    let (settings, messages) = from_file("event_timeout=0\nexec_delay=180");
    assert_eq!((settings, messages.len()), (Settings::default(), 2));
}

#[test]
fn time_spans_are_those_of_systemd() {
    for (text, micros) in [
        ("0", 0),
        ("90", 90_000_000),
        ("1.5", 1_500_000),
        (".25s", 250_000),
        ("1.5ms", 1_500),
        ("2min 30 s", 150_000_000),
        ("1h1m1s", 3_661_000_000),
        ("1M", 2_629_800_000_000),
        ("5us", 5),
        (" 3 days ", 259_200_000_000),
    ] {
        assert_eq!(parse_time_span(text.as_bytes()), Some(Duration::from_micros(micros)), "{text}");
    }
    for text in ["", " ", "s", "-1", "1x", "1..2", ".", "1,5", "1 2 x", "\u{ff}"] {
        assert_eq!(parse_time_span(text.as_bytes()), None, "{text}");
    }
    for text in ["infinity", "99999999999999999999999 years"] {
        assert_eq!(parse_time_span(text.as_bytes()), Some(SPAN_MAX));
    }
}

#[test]
fn signals_have_names_and_numbers() {
    for (text, number) in
        [("KILL", 9), ("SIGKILL", 9), ("sigabrt", 6), ("15", 15), ("RTMIN+1", libc::SIGRTMIN() + 1)]
    {
        assert_eq!(parse_signal(text.as_bytes()), Some(number), "{text}");
    }
    for text in ["", "0", "-9", "65", "SIG", "FROB", "RTMIN+99", "RTMAX+1"] {
        assert_eq!(parse_signal(text.as_bytes()), None, "{text}");
    }
    assert_eq!((signal_name(6), signal_name(64)), (Some("ABRT"), None));
}

#[test]
fn the_number_of_events_at_once_follows_the_machine() {
    let gib = 1 << 30;
    let cases = [(1, gib / 4, 10), (1, 8 * gib, 18), (64, 8 * gib, 64), (5000, 4096 * gib, 2048), (1, 0, 10)];
    for (cpus, memory, expected) in cases {
        assert_eq!(default_children_max(cpus, memory), expected);
    }
}

#[test]
fn drop_ins_of_all_folders_follow_the_strongest_main_file() {
    let tree = Tree::new();
    tree.file("usr/lib/udev/udev.conf", "children_max=1")
        .file("run/udev/udev.conf", "children_max=2\nudev_log=err")
        .file("usr/lib/udev/udev.conf.d/10-a.conf", "children_max=3")
        .file("etc/udev/udev.conf.d/10-a.conf", "event_timeout=5")
        .file("usr/local/lib/udev/udev.conf.d/20-b.conf", "exec_delay=1")
        .file("etc/udev/udev.conf.d/30-c.conf.bak", "children_max=9")
        .file("etc/udev/udev.conf.d/.hidden.conf", "children_max=9")
        .dir("etc/udev/udev.conf.d/40-dir.conf");
    let none = |_: &str| None;
    let (settings, messages) = load(Files::read(&tree.roots()), none, &Overrides::default(), b"");
    assert_eq!((settings.children_max, settings.log_level), (Some(2), LevelFilter::Error));
    assert_eq!(settings.event_timeout, Duration::from_secs(5));
    assert_eq!(settings.exec_delay, Duration::from_secs(1));
    assert_eq!(messages.len(), 1, "a folder is no file: {messages:?}");
    assert!(!in_initrd(&tree.roots()));
    tree.file("etc/initrd-release", "");
    let line = b"rd.udev.children_max=6";
    assert_eq!(load(Files::read(&tree.roots()), none, &Overrides::default(), line).0.children_max, Some(6));
}
