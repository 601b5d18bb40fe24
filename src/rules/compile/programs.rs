//! Programs and imports: PROGRAM, IMPORT, RUN, and the builtins that these name.

use super::checks::{Operators, Refused};
use super::{FileCompiler, LinePart, TokenResult, list_op, rank};
use crate::model::Key;
use crate::rules::ask::BuiltinName;
use crate::rules::lex::{LogicalLine, Op, RawToken};
use crate::rules::program::{RunCommand, Token};
use bstr::ByteSlice;

impl FileCompiler<'_> {
    fn run_match(&mut self, line: &LogicalLine, token: &RawToken) -> Result<bool, Refused> {
        let negate = self.negate(line, token, Operators::MatchAnyway)?;
        self.not_folded(line, token)?;
        Ok(negate)
    }

    pub(super) fn program(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let negate = self.run_match(line, token)?;
        let command = self.template_not_empty(line, token);
        Ok((rank::PROGRAM, LinePart::Token(Token::Program { negate, command })))
    }

    pub(super) fn import(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let source = self.attr(line, token)?;
        let negate = self.run_match(line, token)?;
        let part = match source.as_bytes() {
            b"file" => {
                let path = self.template_not_empty(line, token);
                (rank::IMPORT_FILE, Token::ImportFile { negate, path })
            }
            b"program" => {
                let command = self.template_not_empty(line, token);
                match BuiltinName::of_command(&token.value) {
                    Some(builtin) => {
                        (rank::IMPORT_BUILTIN, Token::ImportBuiltin { negate, builtin, command })
                    }
                    None => (rank::IMPORT_PROGRAM, Token::ImportProgram { negate, command }),
                }
            }
            b"builtin" => {
                let builtin = self.builtin(line, token)?;
                let command = self.template_not_empty(line, token);
                (rank::IMPORT_BUILTIN, Token::ImportBuiltin { negate, builtin, command })
            }
            b"db" => {
                let key = Key::new(self.plain_not_empty(line, token));
                (rank::IMPORT_DB, Token::ImportDb { negate, key })
            }
            b"cmdline" => {
                let key = self.plain_not_empty(line, token);
                (rank::IMPORT_CMDLINE, Token::ImportCommandLine { negate, key })
            }
            b"parent" => {
                let pattern = self.template_not_empty(line, token);
                (rank::IMPORT_PARENT, Token::ImportParent { negate, pattern })
            }
            other => {
                let message = format!("there is no IMPORT{{{}}}", other.as_bstr());
                return Err(self.refuse(
                    line,
                    token,
                    message,
                    "program, builtin, file, db, cmdline or parent",
                ));
            }
        };
        Ok((part.0, LinePart::Token(part.1)))
    }

    fn builtin(&mut self, line: &LogicalLine, token: &RawToken) -> Result<BuiltinName, Refused> {
        match BuiltinName::of_command(&token.value) {
            Some(builtin) => Ok(builtin),
            None => {
                let names: Vec<&str> = BuiltinName::ALL.iter().map(|b| b.as_str()).collect();
                let word = BuiltinName::word(&token.value).unwrap_or_default().as_bstr();
                let message = format!("there is no builtin {word:?}");
                Err(self.refuse(line, token, message, &format!("one of {}", names.join(", "))))
            }
        }
    }

    pub(super) fn run(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let builtin = match token.attr.map(|a| a.as_bytes()) {
            None | Some(b"program") => None,
            Some(b"builtin") => Some(self.builtin(line, token)),
            Some(other) => {
                let message = format!("there is no RUN{{{}}}", other.as_bstr());
                return Err(self.refuse(line, token, message, "program or builtin"));
            }
        };
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::AssignFinal], &[])?;
        let (op, last) = (list_op(op), op == Op::AssignFinal);
        let (rank, command) = match builtin {
            Some(builtin) => {
                (rank::RUN_BUILTIN, RunCommand::Builtin(builtin?, self.template_not_empty(line, token)))
            }
            None => (rank::RUN_PROGRAM, RunCommand::Program(self.template_not_empty(line, token))),
        };
        Ok((rank, LinePart::Token(Token::Run { op, command, last })))
    }
}
