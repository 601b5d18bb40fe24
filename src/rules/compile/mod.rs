//! Rules files to a [`RuleSet`]: every key, operator and value is checked once, here (rules.md
//! sections 1.5 to 2.4).
//!
//! Compiling never fails: the compiler drops a line with a fault, or the faulty token alone where udev does
//! so, and says why in a diagnostic; the rest stands. A line is lexed and checked token by token ([`mod@line`]); each key has
//! its method in the file of its kind ([`mod@matches`], [`programs`], [`assignments`], [`options`]).

mod assignments;
mod checks;
mod hint;
mod line;
mod matches;
mod options;
mod programs;
mod rank;
mod values;

#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;

use super::diagnostic::Diagnostic;
use super::lex::{LogicalLine, Op, RawToken};
use super::program::{ListOp, MatchKey, ParentKey, ParentMatch, RuleSet, Token};
use crate::model::{Key, ResolveNames};
use bstr::{BString, ByteSlice};
use checks::Refused;
pub use values::{parse_id, parse_mode};

/// A rules file in memory.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub path: BString,
    pub content: Vec<u8>,
}

/// Who knows users and groups.
pub trait Accounts {
    /// The uid of a user.
    fn user(&self, name: &[u8]) -> Option<u32>;
    /// The gid of a group.
    fn group(&self, name: &[u8]) -> Option<u32>;
}

/// How to compile.
#[derive(Clone, Copy)]
pub struct CompileOptions<'a> {
    pub resolve_names: ResolveNames,
    pub accounts: &'a dyn Accounts,
}

/// What became of the files.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    pub rules: RuleSet,
    /// In the order of files and lines.
    pub diagnostics: Vec<Diagnostic>,
}

/// Compiles files in their order.
pub fn compile(files: &[SourceFile], options: &CompileOptions) -> Compiled {
    let mut all = Compiled::default();
    files.iter().for_each(|file| all.add(file, options));
    all
}

impl Compiled {
    /// Compiles one file more.
    pub fn add(&mut self, file: &SourceFile, options: &CompileOptions) {
        let index = self.rules.files.len() as u32;
        self.rules.files.push(file.path.clone());
        let mut compiler = FileCompiler { file, options, diagnostics: Vec::new() };
        let sources = compiler.sources();
        let lines = sources.iter().filter_map(|line| compiler.line(line)).collect();
        let base = self.rules.lines.len() as u32;
        for (parsed, goto) in compiler.resolve_gotos(lines) {
            if let Some(nodes) = parsed.static_nodes() {
                self.rules.static_nodes.extend(nodes);
            }
            self.rules.lines.push(parsed.into_line(index, goto.map(|g| g + base)));
        }
        // Lines were read first, jumps resolved afterwards: back into the order of the text.
        compiler.diagnostics.sort_by_key(|d| d.rule);
        self.diagnostics.append(&mut compiler.diagnostics);
    }
}

/// What a written token becomes.
enum LinePart {
    Token(Token),
    Parent(ParentMatch),
    StaticNode(BString),
}

type TokenResult = Result<(u8, LinePart), Refused>;

struct FileCompiler<'a> {
    file: &'a SourceFile,
    options: &'a CompileOptions<'a>,
    diagnostics: Vec<Diagnostic>,
}

impl FileCompiler<'_> {
    /// Compiles one token, by its key: its rank, and what it becomes.
    fn token(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let compares = token.op.is_match();
        match token.key.as_bytes() {
            b"ACTION" => self.simple_match(line, token, rank::ACTION, MatchKey::Action),
            b"DEVPATH" => self.simple_match(line, token, rank::DEVPATH, MatchKey::Devpath),
            b"KERNEL" => self.simple_match(line, token, rank::KERNEL, MatchKey::Kernel),
            b"DRIVER" => self.simple_match(line, token, rank::DRIVER, MatchKey::Driver),
            b"RESULT" => self.simple_match(line, token, rank::RESULT, MatchKey::Result),
            b"SUBSYSTEM" => self.subsystem(line, token),
            b"SYMLINK" if compares => self.simple_match(line, token, rank::SYMLINK_MATCH, MatchKey::Symlink),
            b"SYMLINK" => self.symlink(line, token),
            b"NAME" if compares => self.simple_match(line, token, rank::NAME_MATCH, MatchKey::Name),
            b"NAME" => self.name(line, token),
            b"TAG" if compares => self.simple_match(line, token, rank::TAG_MATCH, MatchKey::Tag),
            b"TAG" => self.tag(line, token),
            b"ENV" if compares => {
                let key = MatchKey::Env(Key::new(self.attr(line, token)?.to_owned()));
                self.match_on(line, token, rank::ENV_MATCH, key)
            }
            b"ENV" => self.env(line, token),
            b"CONST" => self.constant(line, token),
            b"ATTR" if compares => {
                let key = MatchKey::Attr(self.attr_name(line, token)?);
                self.match_on(line, token, rank::ATTR_MATCH, key)
            }
            b"ATTR" => self.assign_attr(line, token),
            b"SYSCTL" => self.sysctl(line, token),
            b"KERNELS" => self.parent_key(line, token, ParentKey::Kernel),
            b"SUBSYSTEMS" => self.parent_key(line, token, ParentKey::Subsystem),
            b"DRIVERS" => self.parent_key(line, token, ParentKey::Driver),
            b"TAGS" => self.parent_key(line, token, ParentKey::Tag),
            b"ATTRS" => self.attrs(line, token),
            b"TEST" => self.test(line, token),
            b"PROGRAM" => self.program(line, token),
            b"IMPORT" => self.import(line, token),
            b"OPTIONS" => self.option(line, token),
            b"OWNER" | b"GROUP" => self.account(line, token),
            b"MODE" => self.mode(line, token),
            b"SECLABEL" => self.seclabel(line, token),
            b"RUN" => self.run(line, token),
            _ => self.unknown_key(line, token),
        }
    }
}

fn list_op(op: Op) -> ListOp {
    match op {
        Op::Add => ListOp::Add,
        Op::Remove => ListOp::Remove,
        _ => ListOp::Set,
    }
}
