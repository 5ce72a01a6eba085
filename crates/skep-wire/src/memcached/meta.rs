//! The meta commands and their flags.
//!
//! memcached has one table of flags for all meta commands: a command ignores the flags that it does not use. If several
//! flags are not right, the error message is about the last of them; an unknown or a repeated flag ends the check.

use super::base64::decode;
use super::line::{Line, STATED_SIZE_MAX, Value, is_key, value_of};
use super::words::{Words, signed, unsigned, unsigned_32};
use super::{
    Direction, ErrorReply, Exptime, KEY_SIZE_MAX, META_WORD_COUNT_MAX, OPAQUE_SIZE_MAX, Request, Store, StoreMode,
};

/// The meta commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaCommand {
    Get,
    Store,
    Delete,
    Arithmetic,
    Debug,
    NoOperation,
}

impl MetaCommand {
    /// Returns the command with this name.
    #[inline]
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let &[b'm', letter] = name else { return None };
        Some(match letter {
            b'g' => MetaCommand::Get,
            b's' => MetaCommand::Store,
            b'd' => MetaCommand::Delete,
            b'a' => MetaCommand::Arithmetic,
            b'e' => MetaCommand::Debug,
            b'n' => MetaCommand::NoOperation,
            _ => return None,
        })
    }
}

/// The flags of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'b> {
    /// The data that the reply returns.
    pub returned: ReturnFlags<'b>,
    /// `b`: the key was base64 in the request.
    pub is_base64: bool,
    /// `q`: suppresses a usual reply: `EN` of `mg`, `HD` of the others, and `VA` of `ma`. An error is sent.
    pub is_quiet: bool,
    /// `v`: the reply has the value.
    pub returns_value: bool,
    /// `u`: `mg` is not an access.
    pub is_no_access: bool,
    /// `I`: `md` marks the pair as stale instead of removing it. `ms` with an older cas stores the value as stale.
    pub is_invalidation: bool,
    /// `C`: the pair must have this cas.
    pub cas: Option<u64>,
    /// `T`: the new expiry.
    pub exptime: Option<Exptime>,
    /// `t` comes before `T`: the reply has the time to live from before the change.
    pub is_ttl_before_touch: bool,
    /// `t` comes before `N`: the reply says that a new pair never expires.
    pub is_ttl_before_vivify: bool,
    /// `N`: creates a missing pair with this expiry, or with that of a later `T`.
    pub vivify: Option<Exptime>,
    /// `R`: the client wins if the pair expires before.
    pub recache: Option<Exptime>,
    /// `F`: the client's flags of a new pair.
    pub flags: u32,
    /// `D`: the operand of `ma`.
    pub delta: u64,
    /// `J`: the value of a pair that `ma` creates.
    pub initial: u64,
    /// `M`: the letter of a mode.
    mode: Option<u8>,
    /// The token of `O` is longer than [`OPAQUE_SIZE_MAX`].
    is_opaque_too_long: bool,
}

impl<'b> MetaFlags<'b> {
    /// Returns flags that have their defaults.
    fn unset(words: Words<'b>) -> Self {
        MetaFlags {
            returned: ReturnFlags(words),
            is_base64: false,
            is_quiet: false,
            returns_value: false,
            is_no_access: false,
            is_invalidation: false,
            cas: None,
            exptime: None,
            is_ttl_before_touch: false,
            is_ttl_before_vivify: false,
            vivify: None,
            recache: None,
            flags: 0,
            delta: 1,
            initial: 0,
            mode: None,
            is_opaque_too_long: false,
        }
    }

    /// Parses the flags of a command with this key. Returns the decoded key if the key is base64.
    fn parse(words: Words<'b>, key: &[u8]) -> Result<(Self, Option<DecodedKey>), ErrorReply> {
        let mut flags = MetaFlags::unset(words);
        let mut seen = 0_u128;
        let mut error = None;
        let mut decoded = None;
        for word in words {
            let (&flag, token) = word.split_first().expect("a word has bytes");
            if flag >= 127 || seen >> flag & 1 != 0 {
                return Err(ErrorReply::DuplicateFlag);
            }
            seen |= 1 << flag;
            match flag {
                b'b' => {
                    flags.is_base64 = true;
                    decoded = DecodedKey::of(key);
                    error = if decoded.is_none() { Some(ErrorReply::Base64) } else { error };
                }
                b'q' => flags.is_quiet = true,
                b'v' => flags.returns_value = true,
                b'u' => flags.is_no_access = true,
                b'I' => flags.is_invalidation = true,
                b'O' => flags.is_opaque_too_long = token.len() > OPAQUE_SIZE_MAX,
                b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'L' | b'P' => {}
                b'N' | b'R' | b'T' => {
                    let exptime = signed(token).map(Exptime);
                    error = if exptime.is_none() { Some(ErrorReply::Token) } else { error };
                    let is_after_ttl = seen >> b't' & 1 != 0;
                    match flag {
                        b'N' => (flags.vivify, flags.is_ttl_before_vivify) = (exptime, is_after_ttl),
                        b'R' => flags.recache = exptime,
                        _ => {
                            (flags.exptime, flags.is_ttl_before_touch) = (exptime, is_after_ttl);
                            flags.vivify = flags.vivify.and(exptime);
                        }
                    }
                }
                b'C' => {
                    flags.cas = unsigned(token);
                    error = if flags.cas.is_none() { Some(ErrorReply::Token) } else { error };
                }
                b'F' => match unsigned_32(token) {
                    Some(number) => flags.flags = number,
                    None => error = error.or(Some(ErrorReply::Format)),
                },
                b'D' => match unsigned(token) {
                    Some(number) => flags.delta = number,
                    None => error = Some(ErrorReply::DeltaValue),
                },
                b'J' => match unsigned(token) {
                    Some(number) => flags.initial = number,
                    None => error = Some(ErrorReply::InitialValue),
                },
                b'M' => match token {
                    &[mode] => flags.mode = Some(mode),
                    _ => error = Some(ErrorReply::ModeSize),
                },
                _ => return Err(ErrorReply::UnknownFlag),
            }
        }
        error.map_or(Ok((flags, decoded)), Err)
    }

    /// Returns an error if the opaque token is too long. An unknown mode is reported first.
    fn check_opaque(&self) -> Result<(), ErrorReply> {
        if self.is_opaque_too_long { Err(ErrorReply::OpaqueTooLong) } else { Ok(()) }
    }
}

/// Data about a pair that a reply returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnFlag<'b> {
    /// `k`: the key.
    Key,
    /// `O`: the opaque token.
    Opaque(&'b [u8]),
    /// `s`: the size of the value.
    Size,
    /// `t`: the seconds until the pair expires.
    TimeToLive,
    /// `c`: the cas.
    Cas,
    /// `f`: the client's flags.
    Flags,
    /// `h`: 1 if the pair was read before.
    Hit,
    /// `l`: the seconds since the last access.
    Idle,
}

/// The flags of a request that ask for data, in the order of the request. A reply has the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnFlags<'b>(Words<'b>);

impl<'b> ReturnFlags<'b> {
    /// Returns the flags in the bytes that [`ReturnFlags::as_bytes`] returned.
    pub fn new(bytes: &'b [u8]) -> Self {
        ReturnFlags(Words::new(bytes))
    }

    /// Returns the flags as bytes of the request. A server that replies later keeps a copy.
    pub fn as_bytes(self) -> &'b [u8] {
        self.0.rest()
    }

    /// Iterates over the flags. Skips those that ask for no data.
    pub fn iter(self) -> impl Iterator<Item = ReturnFlag<'b>> {
        self.0.filter_map(|word| {
            Some(match word {
                [b'k', ..] => ReturnFlag::Key,
                [b'O', token @ ..] => ReturnFlag::Opaque(token),
                [b's', ..] => ReturnFlag::Size,
                [b't', ..] => ReturnFlag::TimeToLive,
                [b'c', ..] => ReturnFlag::Cas,
                [b'f', ..] => ReturnFlag::Flags,
                [b'h', ..] => ReturnFlag::Hit,
                [b'l', ..] => ReturnFlag::Idle,
                _ => return None,
            })
        })
    }
}

/// Parses a line after its key. The key is empty if there is none.
pub(super) fn parse_meta<'b>(
    command: MetaCommand,
    key: &'b mut [u8],
    words: Words<'b>,
    body: &'b [u8],
    value_size_max: usize,
) -> Line<'b> {
    if command == MetaCommand::NoOperation {
        return Line::Complete(Request::MetaNoOperation, 0);
    }
    let parsed = match command {
        MetaCommand::Debug => parse_debug(key, words),
        _ if key.is_empty() => Err(ErrorReply::Command),
        _ if !is_key(key) => Err(ErrorReply::Format),
        MetaCommand::Store => return parse_store(key, words, body, value_size_max),
        _ => parse_keyed(command, key, words),
    };
    match parsed {
        Ok(request) => Line::Complete(request, 0),
        Err(error) => Line::Refused(error, 0, false),
    }
}

/// Returns true if there are more words than this. Counts only if the bytes suffice for as many.
fn is_longer(words: Words<'_>, count_max: usize) -> bool {
    words.rest().len() > 2 * count_max && words.count() > count_max
}

/// Parses a command without a value.
fn parse_keyed<'b>(command: MetaCommand, key: &'b mut [u8], words: Words<'b>) -> Result<Request<'b>, ErrorReply> {
    let is_get = command == MetaCommand::Get;
    if is_longer(words, META_WORD_COUNT_MAX - 2) {
        return Err(if is_get { ErrorReply::GetFlagCount } else { ErrorReply::FlagCount });
    }
    let (flags, decoded) =
        MetaFlags::parse(words, key).map_err(|error| if is_get { error } else { ErrorReply::Flag })?;
    let direction = match flags.mode {
        _ if command != MetaCommand::Arithmetic => Direction::Increment,
        None | Some(b'I' | b'+') => Direction::Increment,
        Some(b'D' | b'-') => Direction::Decrement,
        Some(_) => return Err(ErrorReply::ArithmeticMode),
    };
    flags.check_opaque()?;
    let key = DecodedKey::put(decoded.as_ref(), key);
    Ok(match command {
        MetaCommand::Get => Request::MetaGet { key, flags },
        MetaCommand::Delete => Request::MetaDelete { key, flags },
        _ => Request::MetaArithmetic { key, direction, flags },
    })
}

fn parse_store<'b>(key: &'b mut [u8], mut words: Words<'b>, body: &'b [u8], value_size_max: usize) -> Line<'b> {
    let refused = |error| Line::Refused(error, 0, false);
    let Some(size) = words.next() else { return refused(ErrorReply::Format) };
    if is_longer(words, META_WORD_COUNT_MAX - 3) {
        return refused(ErrorReply::FlagCount);
    }
    let Some(size) = unsigned(size).filter(|&size| size <= STATED_SIZE_MAX) else { return refused(ErrorReply::Format) };
    let size = size as usize;
    let parsed = MetaFlags::parse(words, key).and_then(|(flags, decoded)| {
        let mode = match flags.mode {
            None | Some(b'S') => StoreMode::Set,
            Some(b'E') => StoreMode::Add,
            Some(b'A') => StoreMode::Append,
            Some(b'P') => StoreMode::Prepend,
            Some(b'R') => StoreMode::Replace,
            Some(_) => return Err(ErrorReply::SetMode),
        };
        flags.check_opaque()?;
        Ok((flags, decoded, mode))
    });
    let (flags, decoded, mode) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return Line::Refused(error, size + 2, false),
    };
    if size > value_size_max {
        let removed_key = Some(DecodedKey::put(decoded.as_ref(), key));
        return Line::Complete(Request::StoreTooLarge { removed_key, is_quiet: false }, size + 2);
    }
    match value_of(body, size) {
        Value::Incomplete => Line::NeedsBody(size + 2),
        Value::Invalid => Line::Refused(ErrorReply::ValueEnd, size + 2, false),
        Value::Complete(value) => {
            let key = DecodedKey::put(decoded.as_ref(), key);
            let exptime = flags.exptime.unwrap_or(Exptime::NEVER);
            let store = Store { key, value, mode, flags: flags.flags, exptime, cas: flags.cas };
            Line::Complete(Request::MetaStore { store, flags }, size + 2)
        }
    }
}

/// `me` has no flags except `b` after the key.
fn parse_debug<'b>(key: &'b mut [u8], mut words: Words<'b>) -> Result<Request<'b>, ErrorReply> {
    if key.is_empty() || !is_key(key) {
        return Err(ErrorReply::Format);
    }
    let is_base64 = words.next() == Some(b"b");
    let decoded = is_base64.then(|| DecodedKey::of(key).ok_or(ErrorReply::Format)).transpose()?;
    Ok(Request::MetaDebug { key: DecodedKey::put(decoded.as_ref(), key), is_base64 })
}

/// A key that was decoded, beside the buffer. The buffer still has the text: if the value is incomplete, the line is
/// parsed again.
struct DecodedKey {
    bytes: [u8; KEY_SIZE_MAX],
    size: usize,
}

impl DecodedKey {
    /// Decodes a key, or returns `None` if it is not base64.
    fn of(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_SIZE_MAX];
        decode(text, &mut bytes).map(|size| DecodedKey { bytes, size })
    }

    /// Puts a decoded key in the place of its text. Returns the key of the request.
    fn put<'b>(decoded: Option<&Self>, text: &'b mut [u8]) -> &'b [u8] {
        let Some(&DecodedKey { ref bytes, size }) = decoded else { return text };
        let key = &mut text[..size];
        key.copy_from_slice(&bytes[..size]);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Parsed, RequestParser};
    use super::{Direction, ErrorReply, Exptime, MetaFlags, Request, ReturnFlag, Store, StoreMode, Words};

    /// Gives the parsed request of a line, or its error, to a function.
    fn with<R>(line: &str, check: impl FnOnce(Result<Request<'_>, (ErrorReply, usize)>) -> R) -> R {
        let mut input = format!("{line}\r\n").into_bytes();
        let all = input.len();
        match RequestParser::new(1 << 20).parse(&mut input) {
            Parsed::Complete { size, request } => {
                assert_eq!(size, all, "{line}");
                check(Ok(request))
            }
            Parsed::Refused { size, error, is_quiet: false } => check(Err((error, size))),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn error_of(line: &str) -> ErrorReply {
        with(line, |parsed| parsed.map(|_| ()).expect_err(line).0)
    }

    fn flags_of(flags: &str) -> MetaFlags<'_> {
        MetaFlags::parse(Words::new(flags.as_bytes()), b"YQ==").unwrap().0
    }

    #[test]
    fn every_flag() {
        let flags = flags_of("b q v u I C7 T60 N-1 R30 F9 D2 J3 MA Ofoo k s t c f h l Pp Ll");
        assert!(flags.is_base64 && flags.is_quiet && flags.returns_value);
        assert!(flags.is_no_access && flags.is_invalidation && !flags.is_ttl_before_touch);
        assert_eq!((flags.cas, flags.flags, flags.delta, flags.initial), (Some(7), 9, 2, 3));
        assert_eq!((flags.exptime, flags.vivify), (Some(Exptime(60)), Some(Exptime(-1))));
        assert_eq!((flags.recache, flags.mode), (Some(Exptime(30)), Some(b'A')));
        let returned = [
            ReturnFlag::Opaque(b"foo"),
            ReturnFlag::Key,
            ReturnFlag::Size,
            ReturnFlag::TimeToLive,
            ReturnFlag::Cas,
            ReturnFlag::Flags,
            ReturnFlag::Hit,
            ReturnFlag::Idle,
        ];
        assert!(flags.returned.iter().eq(returned));
        assert!(super::ReturnFlags::new(flags.returned.as_bytes()).iter().eq(returned));

        let none = flags_of("");
        assert!(!(none.is_base64 || none.is_quiet || none.returns_value || none.is_no_access || none.is_invalidation));
        assert_eq!((none.cas, none.exptime, none.vivify, none.recache, none.mode), (None, None, None, None, None));
        assert_eq!((none.flags, none.delta, none.initial, none.returned.iter().count()), (0, 1, 0, 0));
        assert_eq!(flags_of("N1 T2").vivify, Some(Exptime(2)), "the last one counts");
        assert_eq!(flags_of("T2 N1").vivify, Some(Exptime(1)), "the last one counts");
        for (flags, is_before) in [
            ("t T1", (true, false)),
            ("t N1", (false, true)),
            ("N1 t T1", (true, false)),
            ("T1 N1 t", (false, false)),
            ("t R1", (false, false)),
            ("T1", (false, false)),
        ] {
            let parsed = flags_of(flags);
            assert_eq!((parsed.is_ttl_before_touch, parsed.is_ttl_before_vivify), is_before, "{flags}");
        }
    }

    #[test]
    fn every_command() {
        with("mg a v", |parsed| assert_eq!(parsed, Ok(Request::MetaGet { key: b"a", flags: flags_of("v") })));
        with(" mg  a  v   t ", |parsed| assert_eq!(parsed, Ok(Request::MetaGet { key: b"a", flags: flags_of("v t") })));
        with("md a I T30", |parsed| {
            assert_eq!(parsed, Ok(Request::MetaDelete { key: b"a", flags: flags_of("I T30") }));
        });
        for (line, direction) in [
            ("ma a", Direction::Increment),
            ("ma a MI", Direction::Increment),
            ("ma a M+", Direction::Increment),
            ("ma a MD", Direction::Decrement),
            ("ma a M-", Direction::Decrement),
        ] {
            let flags = flags_of(&line[4..]);
            with(line, |parsed| assert_eq!(parsed, Ok(Request::MetaArithmetic { key: b"a", direction, flags })));
        }
        for (letter, mode) in [
            ("", StoreMode::Set),
            ("MS", StoreMode::Set),
            ("ME", StoreMode::Add),
            ("MR", StoreMode::Replace),
            ("MA", StoreMode::Append),
            ("MP", StoreMode::Prepend),
        ] {
            let text = format!("{letter} F5 T9 C3");
            let store = Store { key: b"a", value: b"hi", mode, flags: 5, exptime: Exptime(9), cas: Some(3) };
            with(&format!("ms a 2 {text}\r\nhi"), |parsed| {
                assert_eq!(parsed, Ok(Request::MetaStore { store, flags: flags_of(&text) }));
            });
        }
        for line in ["me a", "me a k", "me a k b", "me a bb"] {
            with(line, |parsed| assert_eq!(parsed, Ok(Request::MetaDebug { key: b"a", is_base64: false }), "{line}"));
        }
        with("me YQ== b x", |parsed| assert_eq!(parsed, Ok(Request::MetaDebug { key: b"a", is_base64: true })));
        for line in ["mn", "mn x", "mn noreply"] {
            with(line, |parsed| assert_eq!(parsed, Ok(Request::MetaNoOperation)));
        }
        // Unused flags are ignored, and 19 words are accepted.
        with("mg a c f h k l s t u v P L O T0 R0 N0 q I", |parsed| assert!(parsed.is_ok()));
        with("md a v t s f c MX", |parsed| assert!(parsed.is_ok()));
    }

    #[test]
    fn base64_keys_are_decoded_in_place() {
        with("mg IAAK b k", |parsed| {
            assert_eq!(parsed, Ok(Request::MetaGet { key: b" \0\n", flags: flags_of("b k") }));
        });
        with("ms Zm9vMQ== 2 b\r\nhi", |parsed| match parsed {
            Ok(Request::MetaStore { store, .. }) => assert_eq!((store.key, store.value), (&b"foo1"[..], &b"hi"[..])),
            other => panic!("{other:?}"),
        });
        let longest = "YWFh".repeat(62);
        with(&format!("md {longest} b"), |parsed| match parsed {
            Ok(Request::MetaDelete { key, .. }) => assert_eq!(key, [b'a'; 186]),
            other => panic!("{other:?}"),
        });
    }

    #[test]
    fn error_messages() {
        let long = "a".repeat(251);
        let opaque = format!("O{}", "1".repeat(32));
        for (line, error) in [
            ("mg", ErrorReply::Command),
            ("ms", ErrorReply::Command),
            ("md", ErrorReply::Command),
            ("ma", ErrorReply::Command),
            ("me", ErrorReply::Format),
            ("mx a", ErrorReply::Command),
            ("mg a v v", ErrorReply::DuplicateFlag),
            ("mg a \u{7f}", ErrorReply::DuplicateFlag),
            ("mg a ä", ErrorReply::DuplicateFlag),
            ("mg a z", ErrorReply::UnknownFlag),
            ("mg a E1", ErrorReply::UnknownFlag),
            ("mg a S1", ErrorReply::UnknownFlag),
            ("mg a Tx", ErrorReply::Token),
            ("mg a T", ErrorReply::Token),
            ("mg a Nx", ErrorReply::Token),
            ("mg a R", ErrorReply::Token),
            ("mg a C-1", ErrorReply::Token),
            ("mg a Fx", ErrorReply::Format),
            ("mg a F-1", ErrorReply::Format),
            ("mg a MSS", ErrorReply::ModeSize),
            ("mg a M", ErrorReply::ModeSize),
            ("mg a Jx", ErrorReply::InitialValue),
            ("mg a Dx", ErrorReply::DeltaValue),
            ("mg a Tx Dx", ErrorReply::DeltaValue),
            ("mg a Dx z", ErrorReply::UnknownFlag),
            ("mg a b", ErrorReply::Base64),
            ("mg a Fx Tx b", ErrorReply::Base64),
            ("mg a b Tx", ErrorReply::Token),
            ("mg a\0 v", ErrorReply::Format),
            (&format!("mg a {opaque}"), ErrorReply::OpaqueTooLong),
            (&format!("mg {long}"), ErrorReply::Format),
            ("mg a c f h k l s t u v P L O T0 R0 N0 q I C1", ErrorReply::GetFlagCount),
            ("ms a", ErrorReply::Format),
            ("ms a x", ErrorReply::Format),
            ("ms a -1", ErrorReply::Format),
            ("ms a S2", ErrorReply::Format),
            ("ms a 2147483646", ErrorReply::Format),
            (&format!("ms {long} 1"), ErrorReply::Format),
            ("ms a 2 c f h k l s t u v P L O T0 R0 N0 q I", ErrorReply::FlagCount),
            ("md a v v", ErrorReply::Flag),
            ("md a z", ErrorReply::Flag),
            ("md !!! b", ErrorReply::Flag),
            (&format!("md a {opaque}"), ErrorReply::OpaqueTooLong),
            (&format!("md {long}"), ErrorReply::Format),
            ("md a c f h k l s t u v P L O T0 R0 N0 q I C1", ErrorReply::FlagCount),
            ("ma a D", ErrorReply::Flag),
            ("ma a D-1", ErrorReply::Flag),
            ("ma a MX", ErrorReply::ArithmeticMode),
            ("ma a Md", ErrorReply::ArithmeticMode),
            ("ma a M", ErrorReply::Flag),
            (&format!("ma a {opaque}"), ErrorReply::OpaqueTooLong),
            ("me a b", ErrorReply::Format),
            (&format!("me {long}"), ErrorReply::Format),
        ] {
            with(line, |parsed| assert_eq!(parsed, Err((error, line.len() + 2)), "{line}"));
        }
    }

    #[test]
    fn a_value_whose_size_is_known_belongs_to_the_refused_request() {
        let opaque = format!("O{}", "1".repeat(32));
        for (flags, error) in [
            ("z", ErrorReply::UnknownFlag),
            ("v v", ErrorReply::DuplicateFlag),
            ("b", ErrorReply::Base64),
            ("Cx", ErrorReply::Token),
            ("MX", ErrorReply::SetMode),
            ("MSE", ErrorReply::ModeSize),
            (&opaque, ErrorReply::OpaqueTooLong),
        ] {
            let request = format!("ms a 2 {flags}\r\nhi");
            with(&request, |parsed| assert_eq!(parsed, Err((error, request.len() + 2)), "{request}"));
        }
        assert_eq!(error_of("ms a 2 q\r\nhiyo"), ErrorReply::ValueEnd);
    }
}
