//! N devices claim one symlink: the time per claim must not grow with N. Run over a temporary tree with
//! `mudevd --events`, so that the kernel's part is small and the number of devices free.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Microseconds per claim for each N: with the claim minus without it.
pub fn measure(mudevd: &Path) -> Result<Vec<(usize, f64)>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    for devices in [10, 100, 1000, 5000] {
        let with = best_run(mudevd, devices, "SUBSYSTEM==\"block\", SYMLINK+=\"shared\"\n")?;
        found.push((devices, with * 1e6 / (devices * rounds(devices)) as f64));
    }
    Ok(found)
}

/// How often each device claims it anew, so that every run makes some 5,000 claims.
fn rounds(devices: usize) -> usize {
    (5000 / devices).max(1)
}

fn best_run(mudevd: &Path, devices: usize, rules: &str) -> Result<f64, Box<dyn std::error::Error>> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        // In memory: a rename over a file costs a flush on some disks.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let tree = folder.join(format!("mudev-claims-{}", std::process::id()));
        let (full, empty) = (tree.join("events"), tree.join("none"));
        let _ = std::fs::remove_dir_all(&tree);
        build(&tree, devices)?;
        std::fs::write(tree.join("rules/50-claims.rules"), rules)?;
        std::fs::write(&empty, "")?;
        // An empty run is the price of starting.
        let start = run(mudevd, &tree, &empty)?;
        let all = run(mudevd, &tree, &full)?;
        let shared = std::fs::read_link(tree.join("dev/shared"));
        std::fs::remove_dir_all(&tree)?;
        shared.map_err(|e| format!("no symlink was made: {e}"))?;
        best = best.min((all - start).max(0.0));
    }
    Ok(best)
}

fn build(tree: &Path, devices: usize) -> std::io::Result<()> {
    for folder in ["sys/class/block", "sys/dev/block", "dev", "run", "proc", "etc", "rules"] {
        std::fs::create_dir_all(tree.join(folder))?;
    }
    let mut events = String::new();
    for n in 0..devices {
        let devpath = format!("/devices/virtual/block/ram{n}");
        let folder = tree.join(format!("sys{devpath}"));
        std::fs::create_dir_all(&folder)?;
        let (major, minor) = (240 + n / 256, n % 256);
        std::fs::write(
            folder.join("uevent"),
            format!("MAJOR={major}\nMINOR={minor}\nDEVNAME=ram{n}\nDEVTYPE=disk\n"),
        )?;
        std::os::unix::fs::symlink("../../../../class/block", folder.join("subsystem"))?;
        std::os::unix::fs::symlink(
            format!("../..{devpath}"),
            tree.join(format!("sys/dev/block/{major}:{minor}")),
        )?;
        std::fs::write(tree.join(format!("dev/ram{n}")), "")?;
    }
    for number in 0..devices * rounds(devices) {
        let (n, action) = (number % devices, if number < devices { "add" } else { "change" });
        let (major, minor) = (240 + n / 256, n % 256);
        events.push_str(&format!(
            "ACTION={action}\nDEVPATH=/devices/virtual/block/ram{n}\nSUBSYSTEM=block\nMAJOR={major}\nMINOR={minor}\n\
             DEVNAME=ram{n}\nDEVTYPE=disk\nSEQNUM={}\n\n",
            number + 1
        ));
    }
    std::fs::write(tree.join("events"), events)
}

fn run(mudevd: &Path, tree: &Path, events: &Path) -> Result<f64, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let output = Command::new(mudevd)
        .arg(format!("--sys-dir={}", tree.join("sys").display()))
        .arg(format!("--dev-dir={}", tree.join("dev").display()))
        .arg(format!("--run-dir={}", tree.join("run").display()))
        .arg(format!("--proc-dir={}", tree.join("proc").display()))
        .arg(format!("--etc-dir={}", tree.join("etc").display()))
        .arg(format!("--rules-dir={}", tree.join("rules").display()))
        .arg(format!("--events={}", events.display()))
        .output()?;
    if !output.status.success() {
        return Err(format!("mudevd --events: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(start.elapsed().as_secs_f64())
}
