//! OPTIONS (rules.md 2.3).

use super::values::parse_priority;
use super::{FileCompiler, LinePart, TokenResult, rank};
use crate::rules::diagnostic::Severity;
use crate::rules::lex::{LogicalLine, Op, RawToken};
use crate::rules::program::{Escape, OptionToken, Token};
use bstr::ByteSlice;

impl FileCompiler<'_> {
    pub(super) fn option(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        self.no_attr(line, token)?;
        let op = self.assignment(line, token, &[Op::Assign, Op::Add, Op::AssignFinal], &[])?;
        let last = op == Op::AssignFinal;
        let value = token.value.as_bytes();
        let (rank, option) = match value {
            b"dump" => (rank::DUMP, OptionToken::Dump { json: false }),
            b"dump-json" => (rank::DUMP, OptionToken::Dump { json: true }),
            b"string_escape=none" => (rank::STRING_ESCAPE, OptionToken::StringEscape(Escape::None)),
            b"string_escape=replace" => (rank::STRING_ESCAPE, OptionToken::StringEscape(Escape::Replace)),
            b"db_persist" => (rank::DB_PERSIST, OptionToken::DbPersist),
            b"watch" => (rank::WATCH, OptionToken::Watch { on: true, last }),
            b"nowatch" => (rank::WATCH, OptionToken::Watch { on: false, last }),
            _ => return self.option_with_value(line, token),
        };
        Ok((rank, LinePart::Token(Token::Option(option))))
    }

    fn option_with_value(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let value = token.value.as_bytes();
        if let Some(name) = value.strip_prefix(b"static_node=") {
            return Ok((rank::STATIC_NODE, LinePart::StaticNode(name.into())));
        }
        if let Some(text) = value.strip_prefix(b"link_priority=") {
            return match parse_priority(text) {
                Some(number) => Ok((
                    rank::LINK_PRIORITY,
                    LinePart::Token(Token::Option(OptionToken::LinkPriority(number))),
                )),
                None => Err(self.refuse(line, token, "the link priority is no number".into(), "")),
            };
        }
        if let Some(text) = value.strip_prefix(b"log_level=") {
            let level = match text {
                b"reset" => None,
                _ => match crate::model::parse_log_level(text) {
                    Some(level) => Some(level),
                    None => {
                        return Err(self.refuse(
                            line,
                            token,
                            "unknown log level".into(),
                            "emerg ... debug, 0 ... 7, reset",
                        ));
                    }
                },
            };
            return Ok((rank::LOG_LEVEL, LinePart::Token(Token::Option(OptionToken::LogLevel(level)))));
        }
        Err(self.ignore(Severity::Warning, line, token, format!("unknown option {:?}", token.value)))
    }
}
