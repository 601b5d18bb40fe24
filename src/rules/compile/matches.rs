//! Matches: on the event's own device, on it or a parent, and TEST.

use super::checks::{Operators, Refused};
use super::values::parse_mode;
use super::{FileCompiler, LinePart, TokenResult, rank};
use crate::rules::ask::Constant;
use crate::rules::diagnostic::Severity;
use crate::rules::lex::{LogicalLine, RawToken};
use crate::rules::pattern::Pattern;
use crate::rules::program::{AttrName, Match, MatchKey, ParentKey, ParentMatch, Token, named_attr};
use crate::rules::subst::Template;
use bstr::ByteSlice;

impl FileCompiler<'_> {
    /// A simple match with its `?*` flip.
    fn compare(&mut self, line: &LogicalLine, token: &RawToken) -> Result<(bool, Pattern), Refused> {
        let negate = self.negate(line, token, Operators::Match)?;
        Ok(match token.value.as_bytes() {
            // Blanks of an attribute are cut as for any other text (rules.md 3.2).
            b"?*" => (!negate, Pattern { trims_attribute: true, ..Pattern::compile(b"", token.ignore_case) }),
            value => (negate, Pattern::compile(value, token.ignore_case)),
        })
    }

    pub(super) fn simple_match(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        rank: u8,
        subject: MatchKey,
    ) -> TokenResult {
        self.no_attr(line, token)?;
        self.match_on(line, token, rank, subject)
    }

    pub(super) fn match_on(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        rank: u8,
        subject: MatchKey,
    ) -> TokenResult {
        let (negate, pattern) = self.compare(line, token)?;
        Ok((rank, LinePart::Token(Token::Match(Match { subject, negate, pattern }))))
    }

    fn parent_match(&mut self, line: &LogicalLine, token: &RawToken, subject: ParentKey) -> TokenResult {
        let (negate, pattern) = self.compare(line, token)?;
        let rank = match subject {
            ParentKey::Kernel => rank::PARENT_KERNEL,
            ParentKey::Subsystem => rank::PARENT_SUBSYSTEM,
            ParentKey::Driver => rank::PARENT_DRIVER,
            ParentKey::Tag => rank::PARENT_TAG,
            ParentKey::Attr(_) => rank::PARENT_ATTR,
        };
        Ok((rank, LinePart::Parent(ParentMatch { subject, negate, pattern })))
    }

    pub(super) fn attr_name(&mut self, line: &LogicalLine, token: &RawToken) -> Result<AttrName, Refused> {
        let name = self.attr(line, token)?;
        if let Some((subsystem, sysname, attr)) = named_attr(name) {
            let (subsystem, sysname, attr) = (subsystem.into(), sysname.into(), attr.into());
            return Ok(AttrName::Of { subsystem, sysname, attr });
        }
        if !name.contains(&b'%') && !name.contains(&b'$') {
            return Ok(AttrName::Literal(name.to_owned()));
        }
        let (template, error) = Template::parse(name);
        if let Some(error) = error {
            self.say(Severity::Error, line, token.span.clone(), format!("in the name: {error}"), "");
        }
        Ok(AttrName::Template(template))
    }

    pub(super) fn parent_key(
        &mut self,
        line: &LogicalLine,
        token: &RawToken,
        subject: ParentKey,
    ) -> TokenResult {
        self.no_attr(line, token)?;
        self.parent_match(line, token, subject)
    }

    pub(super) fn subsystem(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        if matches!(token.value.as_bytes(), b"bus" | b"class") {
            let message = format!("{:?} is matched as \"subsystem\"", token.value);
            self.say(Severity::Warning, line, token.value_span.clone(), message, "write \"subsystem\"");
        }
        let any_class = matches!(token.value.as_bytes(), b"subsystem" | b"bus" | b"class");
        self.simple_match(line, token, rank::SUBSYSTEM, MatchKey::Subsystem { any_class })
    }

    pub(super) fn attrs(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let name = self.attr_name(line, token)?;
        if let AttrName::Literal(text) = &name
            && (text.starts_with(b"device/") || text.contains_str("../"))
        {
            let message = format!("the attribute {text:?} may be a path into another device");
            self.say(
                Severity::Warning,
                line,
                token.span.clone(),
                message,
                "ATTRS looks at all parents by itself",
            );
        }
        self.parent_match(line, token, ParentKey::Attr(name))
    }

    pub(super) fn constant(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let constant = match self.attr(line, token)?.as_bytes() {
            b"arch" => Constant::Arch,
            b"virt" => Constant::Virt,
            b"cvm" => Constant::Cvm,
            other => {
                let message = format!("there is no constant {:?}", other.as_bstr());
                return Err(self.refuse(line, token, message, "arch, virt or cvm"));
            }
        };
        self.match_on(line, token, rank::CONST, MatchKey::Const(constant))
    }

    pub(super) fn test(&mut self, line: &LogicalLine, token: &RawToken) -> TokenResult {
        let mask = match token.attr.filter(|a| !a.is_empty()) {
            None => None,
            Some(text) => match parse_mode(text) {
                Some(mask) => Some(mask),
                None => {
                    let message = format!("{text:?} is no octal mode");
                    return Err(self.refuse(line, token, message, "write TEST{0111}"));
                }
            },
        };
        let negate = self.negate(line, token, Operators::Match)?;
        self.not_folded(line, token)?;
        let path = self.template_not_empty(line, token);
        Ok((rank::TEST, LinePart::Token(Token::Test { negate, path, mask })))
    }
}
