//! Reader of a description's words and values.

use super::error::SpecError;
use super::layers::LAYERS;
use super::tokens::Token;
use polder_datapath::wire::MacAddress;
use std::net::IpAddr;
use std::str::FromStr;

/// Position in the words of a description.
pub(super) struct Words<'a> {
    pub(super) tokens: &'a [Token<'a>],
    pub(super) at: usize,
    pub(super) end: usize,
    /// Layer that is being read.
    pub(super) layer: &'static str,
    /// Fields of the layer so far.
    pub(super) seen: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        Some(token)
    }

    /// The next word of the current layer; `None` at its end.
    pub(super) fn more(&mut self) -> Option<Token<'a>> {
        let is_end = self.tokens.get(self.at).is_none_or(|token| token.text == "/");
        if is_end { None } else { self.next() }
    }

    /// The next field name of the current layer.
    ///
    /// # Errors
    /// When the field was given before.
    pub(super) fn key(&mut self) -> Result<Option<Token<'a>>, SpecError> {
        let Some(token) = self.more() else { return Ok(None) };
        if self.seen.contains(&token.text) {
            let message = format!("`{}` says `{}` twice", self.layer, token.text);
            return Err(SpecError::new(token.span, message, self.choices()));
        }
        self.seen.push(token.text);
        Ok(Some(token))
    }

    pub(super) fn fields(&self) -> &'static [&'static str] {
        LAYERS.iter().find(|(name, _)| *name == self.layer).map_or(&[], |(_, fields)| *fields)
    }

    /// Fields that the current layer may still have, as text.
    pub(super) fn choices(&self) -> String {
        let fields = self.fields().iter().filter(|field| {
            let name = field.split(' ').next().unwrap_or_default();
            !self.seen.contains(&name)
        });
        let fields = fields.map(|field| format!("`{field}`")).collect::<Vec<_>>();
        if fields.is_empty() {
            "`/` and another layer".to_owned()
        } else {
            format!("{}, or `/`", fields.join(", "))
        }
    }

    pub(super) fn unknown(&self, token: &Token<'_>) -> SpecError {
        let names = self.fields().iter().map(|field| field.split(' ').next().unwrap_or_default());
        let near = nearest(token.text, names).map(|near| format!(": is `{near}` meant?")).unwrap_or_default();
        let message = format!("`{}` is not a field of `{}`{near}", token.text, self.layer);
        SpecError::new(token.span.clone(), message, self.choices())
    }

    /// The next word, as the value of `of`.
    pub(super) fn value(&mut self, of: &str, expected: &str) -> Result<Token<'a>, SpecError> {
        match self.more() {
            Some(token) => Ok(token),
            None => {
                let at = self.tokens.get(self.at).map_or(self.end..self.end, |token| token.span.clone());
                Err(SpecError::new(at, format!("`{of}` has no value"), expected))
            }
        }
    }

    pub(super) fn parse<T: FromStr>(&mut self, of: &str, expected: &str) -> Result<Option<T>, SpecError> {
        let token = self.value(of, expected)?;
        let parsed = token.text.parse().ok();
        if parsed.is_some() {
            return Ok(parsed);
        }
        Err(SpecError::new(token.span, format!("`{of}` cannot be `{}`", token.text), expected))
    }

    /// A number up to `most`, decimal or with `0x`.
    pub(super) fn number(&mut self, of: &str, most: u32) -> Result<u32, SpecError> {
        let expected = format!("a number from 0 to {most}, as 10 or 0xa");
        let token = self.value(of, &expected)?;
        let number = match token.text.strip_prefix("0x") {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                u32::from_str_radix(digits, 16).ok()
            }
            None if token.text.bytes().all(|digit| digit.is_ascii_digit()) => token.text.parse().ok(),
            Some(_) | None => None,
        };
        number
            .filter(|&number| number <= most)
            .ok_or_else(|| SpecError::new(token.span, format!("`{of}` cannot be `{}`", token.text), expected))
    }

    pub(super) fn u8(&mut self, of: &str, most: u8) -> Result<Option<u8>, SpecError> {
        self.number(of, u32::from(most)).map(|number| u8::try_from(number).ok())
    }

    pub(super) fn u16(&mut self, of: &str) -> Result<Option<u16>, SpecError> {
        self.number(of, u32::from(u16::MAX)).map(|number| u16::try_from(number).ok())
    }

    pub(super) fn u32(&mut self, of: &str) -> Result<Option<u32>, SpecError> {
        self.number(of, u32::MAX).map(Some)
    }

    pub(super) fn mac(&mut self, of: &str) -> Result<Option<MacAddress>, SpecError> {
        self.parse(of, "a link-layer address, as 02:00:00:00:00:01")
    }

    pub(super) fn ip(&mut self, of: &str) -> Result<Option<IpAddr>, SpecError> {
        self.parse(of, "an address, as 192.0.2.1 or 2001:db8::1")
    }
}

/// Known word with the smallest edit distance to a mistyped one.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    near.filter(|(distance, name)| *distance <= 2 && *distance < name.len()).min().map(|(_, name)| name)
}
