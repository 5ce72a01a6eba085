//! A command of a memcached connection: its operations, and the form of its reply.

use skep_core::operation::{Expiry, ExpiryChange};
use skep_store::cache::{
    CasNumber, ItemArithmetic, ItemChange, ItemCommand, ItemGet, ItemPut, ItemPutMode, ItemRequest,
};
use skep_wire::memcached::{
    Direction, ErrorReply, Exptime, MetaFlags, Request, ReturnFlag, Statistics, Store, StoreMode,
};

use crate::unix_time::UnixTime;
use crate::vocabulary::KeyspaceOperation;

/// A decoded command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) action: Action,
    pub(super) operation_count: usize,
    /// The keys of a retrieval.
    pub(super) words: Span,
    /// The key of another command.
    pub(super) key: Span,
    /// The value of a store, or the password.
    pub(super) value: Span,
    /// The flags of a meta command.
    pub(super) flags: Span,
}

/// A range of the input of a parsed batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u32,
    size: u32,
}

/// What a command does.
#[derive(Debug)]
pub(super) enum Action {
    /// Returns the pairs of several keys.
    Retrieve {
        get: ItemGet,
        with_cas: bool,
    },
    /// Executes an operation on a key. The item has neither key nor value.
    Item(ItemRequest<'static>, Form),
    /// Removes all keys of each shard at a time, in milliseconds since 1970.
    Flush {
        time: u64,
        is_quiet: bool,
    },
    /// Refuses the command.
    Refuse {
        error: ErrorReply,
        is_quiet: bool,
    },
    /// Checks the password.
    Authenticate {
        is_quiet: bool,
    },
    /// Refuses the command of a client that has not sent the password.
    Lock,
    Statistics(Statistics),
    Version,
    Verbosity {
        is_quiet: bool,
    },
    NoOperation,
    /// Closes the connection.
    Quit,
    /// Closes the connection: the client speaks another protocol, or its request does not end within the limits.
    Close,
}

/// The form of the reply to an operation on a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Text(TextForm, Quiet),
    Meta(MetaForm),
    /// The reply to `me`.
    Debug,
}

/// True if the client wants no reply.
pub(super) type Quiet = bool;

/// The form of a reply in the text protocol.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextForm {
    /// That of `set` and others. `has_cas` says that the client has given a number.
    Store {
        mode: StoreMode,
        has_cas: bool,
    },
    /// That of a store whose value was too long. The old item is removed.
    TooLarge,
    Delete,
    Arithmetic(Direction),
    Touch,
}

/// The form of the reply to a meta command.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetaForm {
    pub(super) kind: MetaKind,
    pub(super) is_base64: bool,
    pub(super) is_quiet: Quiet,
    pub(super) returns_value: bool,
    /// The expiry after the command, if the reply is to have this one.
    pub(super) expiry_after: ExpiryChange,
    /// The reply says that a created item never expires.
    pub(super) is_ttl_before_create: bool,
}

/// A meta command on a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetaKind {
    /// `touches` says that the command has an expiry.
    Get {
        touches: bool,
    },
    Store {
        mode: StoreMode,
        has_cas: bool,
    },
    Delete {
        is_invalidation: bool,
    },
    Arithmetic(Direction),
}

/// An operation of a command.
pub(crate) enum Operation<'a> {
    Item(ItemRequest<'a>),
    /// One on all keys of a shard.
    Flush(u16, KeyspaceOperation),
}

impl Span {
    /// Returns the position of a part of the input, which begins at `base`.
    fn new(part: &[u8], base: *const u8) -> Span {
        let start = part.as_ptr().addr() - base.addr();
        let narrow = |number: usize| u32::try_from(number).expect("an input has less than 4 GiB");
        Span { start: narrow(start), size: narrow(part.len()) }
    }

    /// Returns the part of the input.
    #[inline]
    pub(super) fn of(self, input: &[u8]) -> &[u8] {
        &input[self.start as usize..][..self.size as usize]
    }
}

impl Command {
    /// Returns a command without operations.
    pub(super) fn new(action: Action) -> Command {
        let none = Span::default();
        Command { action, operation_count: 0, words: none, key: none, value: none, flags: none }
    }

    /// Decodes a request of a client that must send the password first: as memcached's, by a `set` with any key.
    pub(super) fn locked(request: &Request<'_>, base: *const u8) -> Command {
        match *request {
            Request::Store { store: Store { mode: StoreMode::Set, cas: None, value, .. }, is_quiet } => {
                Command { value: Span::new(value, base), ..Command::new(Action::Authenticate { is_quiet }) }
            }
            Request::Quit => Command::new(Action::Quit),
            _ => Command::new(Action::Lock),
        }
    }

    /// Decodes a request, whose parts are in the input that begins at `base`. Relative times begin at `now`. No value
    /// may become longer than `value_size_max`.
    pub(super) fn decode(
        request: &Request<'_>,
        base: *const u8,
        shard_count: u16,
        value_size_max: usize,
        now: UnixTime,
    ) -> Command {
        // Relative times count from the execution.
        let expiry = |exptime: Exptime| exptime.change(0);
        let text = |key: &[u8], cas, command, form, is_quiet| {
            let item = ItemRequest { key: &[], cas, command };
            Command::on_key(key, base, Action::Item(item, Form::Text(form, is_quiet)))
        };
        match *request {
            Request::Get { keys, key_count, with_cas, exptime } => {
                let get = ItemGet { expiry: exptime.map_or(ExpiryChange::KEEP, expiry), ..ItemGet::PLAIN };
                let action = Action::Retrieve { get, with_cas };
                Command { operation_count: key_count, words: Span::new(keys.rest(), base), ..Command::new(action) }
            }
            Request::Store { ref store, is_quiet } => {
                let (cas, put) = put(store, expiry(store.exptime), value_size_max);
                let form = TextForm::Store { mode: store.mode, has_cas: cas.is_some() };
                let command = text(store.key, cas, ItemCommand::Put(put), form, is_quiet);
                Command { value: Span::new(store.value, base), ..command }
            }
            Request::StoreTooLarge { removed_key: Some(key), is_quiet } => {
                text(key, None, ItemCommand::Delete, TextForm::TooLarge, is_quiet)
            }
            Request::StoreTooLarge { removed_key: None, is_quiet } => {
                Command::new(Action::Refuse { error: ErrorReply::TooLarge, is_quiet })
            }
            Request::Delete { key, is_quiet } => text(key, None, ItemCommand::Delete, TextForm::Delete, is_quiet),
            Request::Arithmetic { key, direction, delta, is_quiet } => {
                let change = change(direction, delta);
                let arithmetic = ItemArithmetic { change, create: None, expiry: ExpiryChange::KEEP };
                text(key, None, ItemCommand::Arithmetic(arithmetic), TextForm::Arithmetic(direction), is_quiet)
            }
            Request::Touch { key, exptime, is_quiet } => {
                let get = ItemGet { returns_value: false, expiry: expiry(exptime), ..ItemGet::PLAIN };
                text(key, None, ItemCommand::Get(get), TextForm::Touch, is_quiet)
            }
            Request::FlushAll { delay, is_quiet } => {
                // As in memcached, the flush takes place a second early. memcached also loses what is stored in that
                // second.
                let time = delay
                    .change(milliseconds(now))
                    .apply(None)
                    .map_or(0, |time| time.milliseconds().saturating_sub(1000));
                let command = Command::new(Action::Flush { time, is_quiet });
                Command { operation_count: shard_count.into(), ..command }
            }
            Request::Statistics(statistics) => Command::new(Action::Statistics(statistics)),
            Request::Version => Command::new(Action::Version),
            Request::Verbosity { is_quiet } => Command::new(Action::Verbosity { is_quiet }),
            Request::Quit => Command::new(Action::Quit),
            Request::MetaNoOperation => Command::new(Action::NoOperation),
            _ => Command::decode_meta(request, base, value_size_max),
        }
    }

    /// Decodes a meta command, as [`Command::decode`] does.
    fn decode_meta(request: &Request<'_>, base: *const u8, value_size_max: usize) -> Command {
        let expiry = |exptime: Exptime| exptime.change(0);
        match *request {
            Request::MetaDebug { key, .. } => {
                let get = ItemGet { returns_value: false, is_access: false, ..ItemGet::PLAIN };
                let item = ItemRequest { key: &[], cas: None, command: ItemCommand::Get(get) };
                Command::on_key(key, base, Action::Item(item, Form::Debug))
            }
            Request::MetaGet { key, flags } => {
                let get = ItemGet {
                    returns_value: flags.returns_value,
                    is_access: !flags.is_no_access,
                    may_win: true,
                    expiry: flags.exptime.map_or(ExpiryChange::KEEP, expiry),
                    create: flags.vivify.map(expiry),
                    recache_before: flags.recache.and_then(|time| expiry(time).apply(None)).map(Expiry::milliseconds),
                };
                let kind = MetaKind::Get { touches: flags.exptime.is_some() };
                Command::meta(key, base, None, ItemCommand::Get(get), kind, &flags, expiry)
            }
            Request::MetaStore { ref store, flags } => {
                let (cas, put) = put(store, expiry(store.exptime), value_size_max);
                let put = ItemPut {
                    // As in memcached, 0 is not the number of an older item.
                    may_be_stale: flags.is_invalidation && flags.cas != Some(0),
                    returns_fields: flags.returned.iter().any(|flag| flag == ReturnFlag::Cas),
                    has_base64_key: flags.is_base64,
                    ..put
                };
                let kind = MetaKind::Store { mode: store.mode, has_cas: cas.is_some() };
                let command = Command::meta(store.key, base, cas, ItemCommand::Put(put), kind, &flags, expiry);
                Command { value: Span::new(store.value, base), ..command }
            }
            Request::MetaDelete { key, flags } => {
                let command = match flags.is_invalidation {
                    true => ItemCommand::Invalidate { expiry: flags.exptime.map_or(ExpiryChange::KEEP, expiry) },
                    false => ItemCommand::Delete,
                };
                let kind = MetaKind::Delete { is_invalidation: flags.is_invalidation };
                Command::meta(key, base, flags.cas.map(CasNumber), command, kind, &flags, expiry)
            }
            Request::MetaArithmetic { key, direction, flags } => {
                let arithmetic = ItemArithmetic {
                    change: change(direction, flags.delta),
                    create: flags.vivify.map(|exptime| (flags.initial, expiry(exptime))),
                    expiry: flags.exptime.map_or(ExpiryChange::KEEP, expiry),
                };
                let (cas, kind) = (flags.cas.filter(|cas| *cas != 0).map(CasNumber), MetaKind::Arithmetic(direction));
                Command::meta(key, base, cas, ItemCommand::Arithmetic(arithmetic), kind, &flags, expiry)
            }
            _ => unreachable!("the others are decoded before"),
        }
    }

    /// Returns a command with one operation.
    fn on_key(key: &[u8], base: *const u8, action: Action) -> Command {
        Command { operation_count: 1, key: Span::new(key, base), ..Command::new(action) }
    }

    /// Returns a meta command on a key.
    fn meta(
        key: &[u8],
        base: *const u8,
        cas: Option<CasNumber>,
        command: ItemCommand<'static>,
        kind: MetaKind,
        flags: &MetaFlags<'_>,
        expiry: impl Fn(Exptime) -> ExpiryChange,
    ) -> Command {
        let after = flags.exptime.filter(|_| !flags.is_ttl_before_touch);
        let form = MetaForm {
            kind,
            is_base64: flags.is_base64,
            is_quiet: flags.is_quiet,
            returns_value: flags.returns_value,
            expiry_after: after.map_or(ExpiryChange::KEEP, expiry),
            is_ttl_before_create: flags.is_ttl_before_vivify,
        };
        let item = ItemRequest { key: &[], cas, command };
        let command = Command::on_key(key, base, Action::Item(item, Form::Meta(form)));
        Command { flags: Span::new(flags.returned.as_bytes(), base), ..command }
    }

    /// Returns true if the command is alone in its parsed batch: no operation may be executed before it, or be decoded
    /// before its reply.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.action, Action::Flush { .. } | Action::Authenticate { .. })
    }

    /// Returns true if the command removes all keys that there are now.
    pub(super) fn is_flush_at_once(&self) -> bool {
        matches!(self.action, Action::Flush { time: 0, .. })
    }

    /// Returns true if the operations may be refused. A client that wants no reply would not learn it, so its commands
    /// are executed, and so is a flush.
    pub(super) fn may_be_refused(&self) -> bool {
        !matches!(self.action, Action::Flush { .. } | Action::Item(_, Form::Text(_, true)))
    }

    /// Returns true if the server executes the command in about the time of an operation, unless it has operations.
    pub(super) fn is_small(&self) -> bool {
        !matches!(self.action, Action::Statistics(_))
    }

    /// Returns true if the server replies to nothing that follows on the connection.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.action, Action::Quit | Action::Close)
    }

    /// Returns the keys of a retrieval.
    #[inline]
    pub(super) fn words<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        self.words.of(input)
    }

    /// Returns the operation at this index, for its execution now. The operation of a retrieval is on `word`.
    #[inline]
    pub(super) fn operation<'a>(
        &self,
        index: usize,
        word: Option<&'a [u8]>,
        input: &'a [u8],
        now: UnixTime,
    ) -> Operation<'a> {
        let mut operation = self.operation_from(index, word, input);
        if let Operation::Item(item) = &mut operation {
            count_from(&mut item.command, milliseconds(now));
        }
        operation
    }

    /// Returns the operation at this index, with relative times.
    fn operation_from<'a>(&self, index: usize, word: Option<&'a [u8]>, input: &'a [u8]) -> Operation<'a> {
        match &self.action {
            Action::Retrieve { get, .. } => {
                let key = word.expect("a retrieval has as many keys as operations");
                Operation::Item(ItemRequest { key, cas: None, command: ItemCommand::Get(*get) })
            }
            Action::Item(item, _) => Operation::Item(item.with_bytes(self.key.of(input), self.value.of(input))),
            Action::Flush { time, .. } => Operation::Flush(index as u16, KeyspaceOperation::FlushAt { time: *time }),
            _ => unreachable!("the command has no operations"),
        }
    }
}

/// Returns the time from which relative times count. As in memcached, the clock of expiries counts whole seconds.
pub(super) fn milliseconds(now: UnixTime) -> u64 {
    1000 * now.seconds_and_microseconds().0
}

/// Lets the relative times of an item's command count from a time.
fn count_from(command: &mut ItemCommand<'_>, now_ms: u64) {
    let count = |expiry: &mut ExpiryChange| *expiry = Exptime::at(*expiry, now_ms);
    match command {
        ItemCommand::Get(ItemGet { expiry, create, recache_before, .. }) => {
            count(expiry);
            create.iter_mut().for_each(count);
            if let Some(time) = recache_before.as_mut()
                && let Some(change) = ExpiryChange::from_number(*time)
            {
                *time = Exptime::at(change, now_ms).to_number();
            }
        }
        ItemCommand::Put(ItemPut { expiry, .. }) | ItemCommand::Invalidate { expiry } => count(expiry),
        ItemCommand::Arithmetic(ItemArithmetic { create, expiry, .. }) => {
            count(expiry);
            create.iter_mut().for_each(|(_, expiry)| count(expiry));
        }
        ItemCommand::Delete => {}
    }
}

/// Returns the number that a store needs, and what it stores, without the value.
fn put(store: &Store<'_>, expiry: ExpiryChange, size_max: usize) -> (Option<CasNumber>, ItemPut<'static>) {
    let (mode, cas) = match store.mode {
        StoreMode::Set => (ItemPutMode::Always, store.cas),
        StoreMode::Replace => (ItemPutMode::IfPresent, store.cas),
        // memcached ignores the number, or one of 0.
        StoreMode::Add => (ItemPutMode::IfAbsent, None),
        StoreMode::Append => (ItemPutMode::Append, store.cas.filter(|cas| *cas != 0)),
        StoreMode::Prepend => (ItemPutMode::Prepend, store.cas.filter(|cas| *cas != 0)),
    };
    let put = ItemPut {
        value: &[],
        mode,
        flags: store.flags,
        expiry,
        size_max,
        may_be_stale: false,
        returns_fields: false,
        has_base64_key: false,
    };
    (cas.map(CasNumber), put)
}

fn change(direction: Direction, delta: u64) -> ItemChange {
    match direction {
        Direction::Increment => ItemChange::Add(delta),
        Direction::Decrement => ItemChange::Subtract(delta),
    }
}
