use super::*;

fn environment_of(lines: &[&str]) -> ExecStrings {
    let mut env = ExecStrings::new();
    lines.iter().for_each(|line| env.push(&[line.as_bytes()]));
    env
}

const LIMIT: Duration = Duration::from_secs(20);

/// Starts commands, serves them as the loop does until all have finished.
fn run(timeout: Duration, commands: &[(Purpose, &str)]) -> Vec<Finished> {
    let mut poll = mio::Poll::new().unwrap();
    let sources = Sources::new(&poll).unwrap();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let mut children = Children::new(null, "/bin".into(), libc::SIGKILL);
    children.set_max(2);
    let (start, mut finished) = (monotonic(), Vec::new());
    for (n, (purpose, command)) in commands.iter().enumerate() {
        let wanted = Wanted {
            job: JobId(n as u64),
            purpose: *purpose,
            event: String::new(),
            device: format!("/{n}").into(),
            command: (*command).into(),
            env: environment_of(&["A=1", "UDEV_DATABASE_VERSION=1"]),
            budget: Budget::new(start, timeout),
        };
        children.spawn(&sources, wanted, start);
    }
    let mut events = mio::Events::with_capacity(64);
    loop {
        finished.extend(children.take_finished());
        if children.is_empty() {
            break;
        }
        assert!(monotonic() < start + LIMIT, "children do not finish");
        children.turn(&mut poll, &mut events, &sources).unwrap();
    }
    finished.sort_by_key(|f| f.job);
    finished
}

fn ask(command: &str) -> Finished {
    run(LIMIT, &[(Purpose::Ask, command)]).remove(0)
}

#[test]
fn one_program_can_be_waited_for() {
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let mut children = Children::new(null, "/bin".into(), libc::SIGKILL);
    let mut run = |command: &str, timeout| {
        let budget = Budget::new(monotonic(), timeout);
        let wanted = Wanted {
            job: JobId(1),
            purpose: Purpose::Ask,
            event: String::new(),
            device: "/x".into(),
            command: command.into(),
            env: ExecStrings::new(),
            budget,
        };
        let finished = run_to_end(&mut children, wanted).unwrap();
        (finished.exit.success, finished.exit.output.to_string(), finished.timed_out)
    };
    assert_eq!(run("echo hi", LIMIT), (true, "hi\n".to_owned(), false));
    assert_eq!(run("sleep 100", Duration::from_millis(20)), (false, String::new(), true));
    assert_eq!(run("no/such/program", LIMIT), (false, String::new(), false));
}

#[test]
fn output_and_status_come_together() {
    let all = run(
        LIMIT,
        &[
            (Purpose::Ask, "echo 'a b' c"),
            (Purpose::Ask, "/bin/sh -c 'echo x; exit 3'"),
            (Purpose::Run, "/bin/true"),
            (Purpose::Run, "/no/such/program"),
            (Purpose::Ask, ""),
            (Purpose::Ask, "/bin/sh -c 'echo $A $UDEV_DATABASE_VERSION $PATH$HOME'"),
        ],
    );
    let short: Vec<_> = all.iter().map(|f| (f.exit.success, f.exit.output.to_string())).collect();
    let expected = [(true, "a b c\n"), (false, "x\n"), (true, ""), (false, ""), (false, "")];
    for (n, (success, output)) in expected.into_iter().enumerate() {
        assert_eq!(short[n], (success, output.to_owned()), "{n}");
    }
    assert!(short[5].1.starts_with("1 1 "), "{short:?}");
    assert!(all.iter().all(|f| !f.timed_out && !f.exit.truncated));
}

#[test]
fn too_much_output_is_cut_and_the_program_still_ends() {
    let finished = ask("/bin/sh -c 'head -c 100000 /dev/zero'");
    assert_eq!((finished.exit.output.len(), finished.exit.truncated), (MAX_OUTPUT, true));
    assert!(finished.exit.success);
    assert!(!ask("/bin/sh -c 'head -c 16383 /dev/zero'").exit.truncated);
}

#[test]
fn an_endless_program_meets_its_deadline_and_its_group_with_it() {
    let flood =
        "/bin/sh -c 'while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done & wait'";
    let all = run(Duration::from_millis(300), &[(Purpose::Ask, flood), (Purpose::Run, "/bin/sleep 100")]);
    assert!(all.iter().all(|f| f.timed_out && !f.exit.success), "{all:?}");
}

#[test]
fn a_grandchild_that_keeps_the_pipe_delays_nothing() {
    let before = monotonic();
    let finished = ask("/bin/sh -c 'sleep 15 & echo now'");
    assert_eq!(finished.exit.output, "now\n");
    assert!(monotonic().since(before) < Duration::from_secs(10));
}

#[test]
fn a_grandchild_that_floods_the_log_delays_nothing() {
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let (pipe, writer) = process::pipe().unwrap();
    let argv = environment_of(&["true"]);
    let what = Spawn {
        program: Program::Path(c"/bin/true".into()),
        argv,
        envp: ExecStrings::new(),
        stdio: [null.as_fd(), writer.as_fd(), null.as_fd()],
    };
    let mut running = Running {
        job: JobId(1),
        device: "/x".into(),
        purpose: Purpose::Run,
        name: String::new(),
        child: child::spawn(what).unwrap(),
        capture: false,
        output: BString::default(),
        truncated: false,
        discarded: 0,
        streams: [Some(Stream { pipe, name: "stdout", line: BString::default() }), None],
        ended: None,
        budget: Budget::new(monotonic(), LIMIT),
        warned: false,
        killed_at: None,
    };
    running.ended = Some(running.child.wait().unwrap());
    // The grandchild fills the pipe again each time, so it is never found empty.
    let mut grandchild = File::from(writer);
    let mut turns = 0;
    loop {
        std::io::Write::write_all(&mut grandchild, &[b'\n'; MAX_READ]).unwrap();
        if !matches!(running.read(0), Progress::More) {
            break;
        }
        turns += 1;
        assert!(turns <= 2 * MAX_DISCARDED / MAX_READ, "the program has ended, its output does not");
    }
}

#[test]
fn without_time_nothing_is_started() {
    let finished = run(Duration::ZERO, &[(Purpose::Run, "/bin/true")]).remove(0);
    assert!(finished.timed_out && !finished.exit.success);
}
