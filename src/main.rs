//! The one executable. The name it is called by chooses daemon, tool or helper; nothing else is
//! decided here.

fn main() -> std::process::ExitCode {
    mudev::dispatch(std::env::args_os().collect())
}
