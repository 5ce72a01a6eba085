//! A command of a memcached connection: its operations, and the form of its reply.

use skep_core::operation::{Expiry, ExpiryChange};
use skep_store::cache::{
    CasNumber, ItemArithmetic, ItemChange, ItemCommand, ItemGet, ItemPut, ItemPutMode, ItemRequest,
};
use skep_wire::memcached::{
    Direction, ErrorReply, Exptime, MetaFlags, Plain, Request, ReturnFlag, Statistics, Store, StoreMode,
};

use crate::resp_command::table::CommandName;
use crate::unix_time::UnixTime;
use crate::vocabulary::KeyspaceOperation;

/// A decoded command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) action: Action,
    pub(super) operation_count: usize,
    /// The keys of a retrieval, unless it is a `get` of one.
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
    /// Returns the pairs of several keys, and changes their expiries.
    Retrieve {
        expiry: ExpiryChange,
        with_cas: bool,
    },
    /// Returns the pair of one key.
    Get,
    /// Stores a pair.
    Set {
        flags: u32,
        expiry: ExpiryChange,
    },
    /// Executes an operation on a key: that at this index of the batch's items.
    Item(u32),
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
    /// Refuses a command that the user may not run, or not so often.
    Deny {
        reason: Denied,
        is_quiet: bool,
    },
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

/// The reason why a command is denied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Denied {
    Command(CommandName),
    Key(Span),
    /// There are too many keys to compare with the patterns of the user.
    TooManyKeys,
    /// The user has had all operations or bytes of this second.
    Rate,
}

/// An operation on a key. The item has neither key nor value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    item: ItemRequest<'static>,
    pub(super) form: Form,
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
    pub(super) fn new(part: &[u8], base: *const u8) -> Span {
        let start = part.as_ptr().addr() - base.addr();
        debug_assert!(start + part.len() <= u32::MAX as usize, "an input has less than 4 GiB");
        Span { start: start as u32, size: part.len() as u32 }
    }

    /// Returns the part of the input.
    #[inline]
    pub(super) fn of(self, input: &[u8]) -> &[u8] {
        &input[self.start as usize..][..self.size as usize]
    }
}

/// Decodes the requests of an input.
pub(super) struct Decoder<'d> {
    /// The address at which the input begins, with the parts of all requests.
    pub(super) base: *const u8,
    /// No value may become longer than this.
    pub(super) value_size_max: usize,
    /// The items of the batch. There is room for one more.
    pub(super) items: &'d mut Vec<Item>,
}

impl Decoder<'_> {
    /// Decodes a request. Relative times begin at `now`.
    pub(super) fn decode(&mut self, request: &Request<'_>, shard_count: u16, now: UnixTime) -> Command {
        let (base, value_size_max) = (self.base, self.value_size_max);
        // Relative times count from the execution.
        let expiry = |exptime: Exptime| exptime.change(0);
        let mut text =
            |key: &[u8], cas, command, form, is_quiet| self.on_key(key, cas, command, Form::Text(form, is_quiet));
        match *request {
            Request::Get { keys, key_count, with_cas, exptime } => {
                let action = Action::Retrieve { expiry: exptime.map_or(ExpiryChange::KEEP, expiry), with_cas };
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
            _ => self.decode_meta(request),
        }
    }

    /// Decodes a meta command, as [`Decoder::decode`] does.
    fn decode_meta(&mut self, request: &Request<'_>) -> Command {
        let expiry = |exptime: Exptime| exptime.change(0);
        match *request {
            Request::MetaDebug { key, .. } => {
                let get = ItemGet { returns_value: false, is_access: false, ..ItemGet::PLAIN };
                self.on_key(key, None, ItemCommand::Get(get), Form::Debug)
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
                self.meta(key, None, ItemCommand::Get(get), kind, &flags, expiry)
            }
            Request::MetaStore { ref store, flags } => {
                let (cas, put) = put(store, expiry(store.exptime), self.value_size_max);
                let put = ItemPut {
                    // As in memcached, 0 is not the number of an older item.
                    may_be_stale: flags.is_invalidation && flags.cas != Some(0),
                    returns_fields: flags.returned.iter().any(|flag| flag == ReturnFlag::Cas),
                    has_base64_key: flags.is_base64,
                    ..put
                };
                let kind = MetaKind::Store { mode: store.mode, has_cas: cas.is_some() };
                let command = self.meta(store.key, cas, ItemCommand::Put(put), kind, &flags, expiry);
                Command { value: Span::new(store.value, self.base), ..command }
            }
            Request::MetaDelete { key, flags } => {
                let command = match flags.is_invalidation {
                    true => ItemCommand::Invalidate { expiry: flags.exptime.map_or(ExpiryChange::KEEP, expiry) },
                    false => ItemCommand::Delete,
                };
                let kind = MetaKind::Delete { is_invalidation: flags.is_invalidation };
                self.meta(key, flags.cas.map(CasNumber), command, kind, &flags, expiry)
            }
            Request::MetaArithmetic { key, direction, flags } => {
                let arithmetic = ItemArithmetic {
                    change: change(direction, flags.delta),
                    create: flags.vivify.map(|exptime| (flags.initial, expiry(exptime))),
                    expiry: flags.exptime.map_or(ExpiryChange::KEEP, expiry),
                };
                let (cas, kind) = (flags.cas.filter(|cas| *cas != 0).map(CasNumber), MetaKind::Arithmetic(direction));
                self.meta(key, cas, ItemCommand::Arithmetic(arithmetic), kind, &flags, expiry)
            }
            _ => unreachable!("the others are decoded before"),
        }
    }

    /// Adds an item. Returns the command with this operation.
    fn on_key(&mut self, key: &[u8], cas: Option<CasNumber>, command: ItemCommand<'static>, form: Form) -> Command {
        let action = Action::Item(self.items.len() as u32);
        self.items.push(Item { item: ItemRequest { key: &[], cas, command }, form });
        Command { operation_count: 1, key: Span::new(key, self.base), ..Command::new(action) }
    }

    /// Returns a meta command on a key.
    fn meta(
        &mut self,
        key: &[u8],
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
        let command = self.on_key(key, cas, command, Form::Meta(form));
        Command { flags: Span::new(flags.returned.as_bytes(), self.base), ..command }
    }
}

impl Command {
    /// Returns true if the reply does not count for the limits of a user: an error, because the command is not executed, or
    /// the reply to a command that does not count.
    pub(super) fn is_uncounted(&self) -> bool {
        use Action::{Authenticate, Close, Deny, Lock, NoOperation, Quit, Refuse, Verbosity, Version};
        matches!(
            self.action,
            Refuse { .. }
                | Deny { .. }
                | Lock
                | Authenticate { .. }
                | Close
                | Quit
                | Version
                | Verbosity { .. }
                | NoOperation
        )
    }

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

    /// Returns a frequent command.
    #[inline]
    pub(super) fn plain(plain: Plain<'_>, base: *const u8) -> Command {
        let none = Span::default();
        match plain {
            Plain::Get { key } => Command {
                action: Action::Get,
                operation_count: 1,
                words: none,
                key: Span::new(key, base),
                value: none,
                flags: none,
            },
            Plain::Set { key, flags, exptime, value } => Command {
                action: Action::Set { flags, expiry: exptime.change(0) },
                operation_count: 1,
                words: none,
                key: Span::new(key, base),
                value: Span::new(value, base),
                flags: none,
            },
        }
    }

    /// Returns true if the command has one operation whose reply is written at once: a `get` of one key or a `set`.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.action, Action::Get | Action::Set { .. })
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
    pub(super) fn may_be_refused(&self, items: &[Item]) -> bool {
        match self.action {
            Action::Flush { .. } => false,
            Action::Item(item) => !matches!(items[item as usize].form, Form::Text(_, true)),
            _ => true,
        }
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

    /// Returns the operation of a plain command, for its execution now.
    #[inline]
    pub(super) fn plain_operation<'a>(&self, input: &'a [u8], now: UnixTime) -> ItemRequest<'a> {
        match self.action {
            Action::Set { flags, expiry } => {
                let expiry = match expiry {
                    ExpiryChange::CLEAR => expiry,
                    expiry => Exptime::at(expiry, milliseconds(now)),
                };
                let put = ItemPut { value: self.value.of(input), flags, expiry, ..ItemPut::PLAIN };
                ItemRequest { key: self.key.of(input), cas: None, command: ItemCommand::Put(put) }
            }
            _ => ItemRequest { key: self.key.of(input), cas: None, command: ItemCommand::ReadValue },
        }
    }

    /// Returns the operation at this index, for its execution now. The operation of a retrieval is on `word`.
    pub(super) fn operation<'a>(
        &self,
        index: usize,
        word: Option<&'a [u8]>,
        items: &[Item],
        input: &'a [u8],
        now: UnixTime,
    ) -> Operation<'a> {
        let mut item = match &self.action {
            Action::Retrieve { expiry, with_cas } => {
                let key = word.expect("a retrieval has as many keys as operations");
                let command = match *expiry {
                    ExpiryChange::KEEP if *with_cas => ItemCommand::Read,
                    ExpiryChange::KEEP => ItemCommand::ReadValue,
                    expiry => ItemCommand::Get(ItemGet { expiry, ..ItemGet::PLAIN }),
                };
                ItemRequest { key, cas: None, command }
            }
            Action::Get | Action::Set { .. } => return Operation::Item(self.plain_operation(input, now)),
            Action::Item(item) => items[*item as usize].item.with_bytes(self.key.of(input), self.value.of(input)),
            Action::Flush { time, .. } => {
                return Operation::Flush(index as u16, KeyspaceOperation::FlushAt { time: *time });
            }
            _ => unreachable!("the command has no operations"),
        };
        count_from(&mut item.command, milliseconds(now));
        Operation::Item(item)
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
        ItemCommand::Read | ItemCommand::ReadValue | ItemCommand::Delete => {}
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
    let put = ItemPut { mode, flags: store.flags, expiry, size_max, ..ItemPut::PLAIN };
    (cas.map(CasNumber), put)
}

fn change(direction: Direction, delta: u64) -> ItemChange {
    match direction {
        Direction::Increment => ItemChange::Add(delta),
        Direction::Decrement => ItemChange::Subtract(delta),
    }
}
