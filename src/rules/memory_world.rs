//! A world in memory that answers every question of the evaluator: for tests, for the corpus of
//! cases, and for trying rules on a device that is not there.
//!
//! Devices form a tree by their devpaths; files, programs, builtins and accounts are tables. What is
//! in no table does not exist: a program that is not listed cannot be started.

use super::ask::{Answer, Ask, Attr, BuiltinResult, Constant, ParentDevice, ParentState, Subject};
use super::compile::Accounts;
use super::program::split_named;
use crate::model::device::last_component;
use crate::model::need::Exit;
use crate::model::{Action, Errno, Event, Properties, SeqNum, Tags, Uevent};
use bstr::{BString, ByteSlice};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table of the world.
pub type ByName<T> = BTreeMap<BString, T>;

/// A directory in sysfs.
#[derive(Clone, Debug, Default)]
pub struct MemoryDevice {
    pub devpath: BString,
    pub subsystem: BString,
    pub driver: BString,
    /// By name relative to the directory, which may contain slashes.
    pub attrs: ByName<BString>,
    /// `uevent` file and record together.
    pub properties: Properties,
    pub tags: Tags,
}

/// A file with an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFile {
    /// `st_mode`, type included.
    pub mode: u32,
    pub content: Result<BString, Errno>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct MemoryWorld {
    pub devices: Vec<MemoryDevice>,
    pub files: ByName<MemoryFile>,
    /// By command, as substituted.
    pub programs: ByName<Exit>,
    /// By command, as substituted.
    pub builtins: ByName<BuiltinResult>,
    /// By name in slash form.
    pub sysctls: ByName<Result<BString, Errno>>,
    pub users: ByName<u32>,
    pub groups: ByName<u32>,
    pub command_line: BString,
    pub arch: BString,
    pub virt: BString,
    pub cvm: BString,
    /// Every question so far.
    pub asked: Vec<Ask>,
}

/// Accounts of a machine that has none.
pub struct Nobody;

impl Accounts for Nobody {
    fn user(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn group(&self, _name: &[u8]) -> Option<u32> {
        None
    }
}

/// Accounts of a machine that has root alone.
pub struct OnlyRoot;

impl Accounts for OnlyRoot {
    fn user(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }
}

impl MemoryDevice {
    /// A device without driver and properties.
    pub fn new(devpath: &str, subsystem: &str, attrs: &[(&str, &str)]) -> MemoryDevice {
        MemoryDevice {
            devpath: devpath.into(),
            subsystem: subsystem.into(),
            attrs: attrs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            ..MemoryDevice::default()
        }
    }
}

impl MemoryWorld {
    /// Answers a question about this event, and keeps it in [`asked`](Self::asked).
    pub fn answer(&mut self, event: &Event, ask: &Ask) -> Answer {
        self.asked.push(ask.clone());
        match ask {
            Ask::Parents => Answer::Parents(self.parents(event).iter().map(|d| parent_device(d)).collect()),
            Ask::Driver => {
                let driver = self.device(&event.device.devpath).map(|d| d.driver.clone());
                Answer::Text(Ok(driver.filter(|d| !d.is_empty())))
            }
            Ask::Attr { subject, name } => Answer::Attr(self.attr(event, subject, name)),
            Ask::ParentState(n) => {
                let parents = self.parents(event);
                let state = parents.get(usize::from(*n)).map_or_else(ParentState::default, |d| ParentState {
                    properties: d.properties.clone(),
                    tags: d.tags.clone(),
                });
                Answer::Parent(Arc::new(state))
            }
            Ask::Mode { path } => Answer::Mode(self.mode(event, path)),
            Ask::Sysctl { name } => Answer::Text(match self.sysctls.get(name) {
                Some(Ok(value)) => Ok(Some(value.clone())),
                Some(Err(errno)) => Err(*errno),
                None => Ok(None),
            }),
            Ask::File { path } => Answer::Text(match self.files.get(path).map(|f| &f.content) {
                Some(Ok(content)) => Ok(Some(content.clone())),
                Some(Err(errno)) => Err(*errno),
                None => Ok(None),
            }),
            Ask::CommandLine => Answer::Text(Ok(Some(self.command_line.clone()))),
            Ask::Constant(constant) => Answer::Text(Ok(Some(match constant {
                Constant::Arch => self.arch.clone(),
                Constant::Virt => self.virt.clone(),
                Constant::Cvm => self.cvm.clone(),
            }))),
            Ask::User { name } => Answer::Id(self.users.get(name).copied()),
            Ask::Group { name } => Answer::Id(self.groups.get(name).copied()),
            Ask::WriteAttr { target, value } => {
                self.write_attr(event, target, value);
                Answer::Written
            }
            Ask::WriteSysctl { name, value } => {
                self.sysctls.insert(name.clone(), Ok(value.clone()));
                Answer::Written
            }
            Ask::Run { command } => Answer::Exit(self.programs.get(command).cloned().unwrap_or(Exit {
                success: false,
                output: BString::default(),
                truncated: false,
            })),
            Ask::Builtin { command, .. } => {
                Answer::Builtin(self.builtins.get(command).cloned().unwrap_or_default())
            }
        }
    }

    /// Lets a program succeed with this output.
    pub fn program(&mut self, command: &str, output: impl Into<BString>) {
        let exit = Exit { success: true, output: output.into(), truncated: false };
        self.programs.insert(command.into(), exit);
    }

    /// Adds a regular file.
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<BString>) {
        let file = MemoryFile { mode: 0o100_000 | mode, content: Ok(content.into()) };
        self.files.insert(path.into(), file);
    }

    /// The device at this devpath.
    pub fn device(&self, devpath: &BString) -> Option<&MemoryDevice> {
        self.devices.iter().find(|d| d.devpath == *devpath)
    }

    fn parents(&self, event: &Event) -> Vec<&MemoryDevice> {
        let path = &event.device.devpath;
        let above =
            |d: &&MemoryDevice| path.strip_prefix(d.devpath.as_slice()).is_some_and(|r| r.starts_with(b"/"));
        let mut parents: Vec<&MemoryDevice> = self.devices.iter().filter(above).collect();
        parents.sort_by_key(|d| std::cmp::Reverse(d.devpath.len()));
        parents
    }

    fn named(&self, subsystem: &BString, sysname: &BString) -> Option<&MemoryDevice> {
        let name: BString = sysname.replace("/", "!").into();
        self.devices.iter().find(|d| d.subsystem == *subsystem && last_component(&d.devpath) == name)
    }

    fn attr(&self, event: &Event, subject: &Subject, name: &BString) -> Attr {
        let device = match subject {
            Subject::Event => self.device(&event.device.devpath),
            Subject::Parent(n) => self.parents(event).get(usize::from(*n)).copied(),
            Subject::Named { subsystem, sysname } => match self.named(subsystem, sysname) {
                None => return Attr::NoDevice,
                device => device,
            },
        };
        let Some(device) = device else { return Attr::Missing };
        let link = match name.as_slice() {
            b"subsystem" => &device.subsystem,
            b"driver" => &device.driver,
            _ => &BString::default(),
        };
        match device.attrs.get(name) {
            Some(value) => Attr::Value(value.trim_end_with(|c| matches!(c, '\r' | '\n' | '\0')).into()),
            None if !link.is_empty() => Attr::Value(link.clone()),
            None => Attr::Missing,
        }
    }

    /// The absolute path of what TEST and ATTR= name.
    fn path(&self, event: &Event, text: &BString) -> Option<BString> {
        if text.starts_with(b"/") {
            return Some(text.clone());
        }
        let (devpath, rest) = match split_named(text) {
            Some((subsystem, sysname, rest)) => {
                let device = self.named(&subsystem.into(), &sysname.into())?;
                (&device.devpath, rest.as_bytes())
            }
            None => (&event.device.devpath, text.as_slice()),
        };
        Some([b"/sys", devpath.as_slice(), b"/", rest].concat().into())
    }

    /// All files of this world, with their modes.
    fn all_files(&self) -> Vec<(BString, u32)> {
        let files = self.files.iter().map(|(path, file)| (path.clone(), file.mode));
        let attrs = self.devices.iter().flat_map(|d| {
            let names = d.attrs.keys().map(|k| k.as_bstr()).chain([b"uevent".as_bstr()]);
            names.map(|n| ([b"/sys", d.devpath.as_slice(), b"/", n].concat().into(), 0o100_644))
        });
        files.chain(attrs).collect()
    }

    fn mode(&self, event: &Event, path: &BString) -> Result<Option<u32>, Errno> {
        let Some(path) = self.path(event, path) else { return Ok(None) };
        let files = self.all_files();
        let Some((before, after)) = path.split_once_str("/*/") else {
            return Ok(mode_of(&files, &path));
        };
        if files.iter().any(|f| f.0 == before) {
            return Err(Errno(libc::ENOTDIR));
        }
        let star = expand_star(&files, before, after);
        Ok(star.and_then(|path| mode_of(&files, &path)))
    }

    fn write_attr(&mut self, event: &Event, target: &BString, value: &BString) {
        let Some(mut path) = self.path(event, target) else { return };
        if let Some((before, after)) = path.split_once_str("/*/") {
            match expand_star(&self.all_files(), before, after) {
                Some(found) => path = found,
                None => return,
            }
        }
        for device in &mut self.devices {
            let directory = [b"/sys", device.devpath.as_slice(), b"/"].concat();
            if let Some(name) = path.strip_prefix(directory.as_slice())
                && let Some(attr) = device.attrs.get_mut(name.as_bstr())
            {
                *attr = value.clone();
            }
        }
    }
}

fn parent_device(device: &MemoryDevice) -> ParentDevice {
    ParentDevice {
        devpath: device.devpath.clone(),
        sysname: crate::model::device::sysname(&device.devpath),
        subsystem: device.subsystem.clone(),
        driver: device.driver.clone(),
    }
}

/// The mode of a file, or of a directory that one lies in.
fn mode_of(files: &[(BString, u32)], path: &BString) -> Option<u32> {
    let path = path.trim_end_with(|c| c == '/');
    if let Some(file) = files.iter().find(|f| f.0 == path) {
        return Some(file.1);
    }
    let inside = |f: &&(BString, u32)| f.0.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
    files.iter().find(inside).map(|_| 0o40_755)
}

fn expand_star(files: &[(BString, u32)], before: &[u8], after: &[u8]) -> Option<BString> {
    files.iter().find_map(|(file, _)| {
        let rest = file.strip_prefix(before)?.strip_prefix(b"/")?;
        let (entry, _) = rest.split_once_str("/")?;
        let path: BString = [before, b"/", entry, b"/", after].concat().into();
        (!entry.starts_with(b".") && mode_of(files, &path).is_some()).then_some(path)
    })
}

/// An event of a device, with the properties a kernel gives besides those listed.
pub fn event(action: Action, devpath: &str, subsystem: &str, properties: &[(&str, &str)]) -> Event {
    let always =
        [("ACTION", action.as_str()), ("DEVPATH", devpath), ("SUBSYSTEM", subsystem), ("SEQNUM", "1")];
    let properties: Properties = always.iter().chain(properties).copied().collect();
    Event::new(Uevent {
        action,
        seqnum: SeqNum(1),
        devpath: devpath.into(),
        subsystem: subsystem.into(),
        properties,
    })
}
