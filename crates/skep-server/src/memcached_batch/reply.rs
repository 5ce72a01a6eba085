//! The replies to the commands of a memcached connection.

use skep_core::operation::{Expiry, ExpiryChange, OperationError, Reply};
use skep_store::cache::{ItemFields, ItemValue};
use skep_wire::memcached::{
    Direction, ErrorReply, Exptime, MetaCode, MetaDebug, MetaItem, ReplyWriter, ReturnFlags, Statistics, Status,
    StoreMode,
};
use skep_wire::native::{Response, WireError};

use super::command::{Action, Command, Denied, Form, Item, MetaForm, MetaKind, TextForm, milliseconds};
use crate::access::{Login, LoginRefusal, Reason};
use crate::limits::{OPERATION_WORK, TEXT_WORK};
use crate::memcached_counts::Count;
use crate::memcached_statistics;
use crate::memcached_statistics::MEMCACHED_VERSION;
use crate::metrics::Metrics;
use crate::resp_command::{Context, note_denied, note_refused_login};

/// Bytes that memcached counts for an item besides its key, its value and its flags: a header, a number for `cas`, and the
/// ends of key and value.
const ITEM_OVERHEAD: usize = 48 + 8 + 1 + 2;
/// Bytes that memcached counts for flags that are not 0.
const FLAGS_SIZE: usize = 4;

/// Plain commands that are not yet counted.
#[derive(Debug, Default)]
pub(super) struct PlainCounts {
    hits: u64,
    misses: u64,
    stored: u64,
}

impl PlainCounts {
    /// Counts the commands.
    pub(super) fn count(self, context: &Context<'_>) {
        let PlainCounts { hits, misses, stored } = self;
        for (count, number) in [
            (Count::Gets, hits + misses),
            (Count::GetHits, hits),
            (Count::GetMisses, misses),
            (Count::Sets, stored),
            (Count::Items, stored),
        ] {
            context.count_many(count, number);
        }
    }
}

impl Command {
    /// Writes the reply to a plain command, and counts it.
    #[inline]
    pub(super) fn reply_plain(
        &self,
        response: Response<'_>,
        input: &[u8],
        output: &mut Vec<u8>,
        counts: &mut PlainCounts,
        context: &mut Context<'_>,
    ) {
        let mut writer = ReplyWriter::new(output);
        match (&self.action, response) {
            (_, Err(error)) => write_unserved(error, output),
            (Action::Set { .. }, Ok(Reply::Done)) => {
                counts.stored += 1;
                writer.status(Status::Stored);
            }
            (Action::Set { .. }, Ok(reply)) => {
                TextForm::Store { mode: StoreMode::Set, has_cas: false }.write(reply, output, context);
            }
            (_, Ok(reply)) => {
                if let Reply::Value(bytes) = reply {
                    let ItemValue { flags, value } = ItemValue::decode(bytes);
                    writer.only_value(self.key.of(input), flags, value);
                    counts.hits += 1;
                } else {
                    counts.misses += 1;
                    writer.status(Status::End);
                }
            }
        }
    }

    /// Writes the part of the reply that belongs to an operation. `word` is the key, if the command is a retrieval.
    pub(super) fn reply(
        &self,
        response: Response<'_>,
        word: Option<&[u8]>,
        items: &[Item],
        input: &[u8],
        output: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) {
        let writer = &mut ReplyWriter::new(output);
        match &self.action {
            Action::Retrieve { expiry, with_cas } => {
                let touches = *expiry != ExpiryChange::KEEP;
                match response {
                    Ok(Reply::Value(bytes)) => {
                        let key = word.expect("a retrieval has as many keys as operations");
                        if touches || *with_cas {
                            let (fields, value) = ItemFields::decode(bytes);
                            writer.value(key, fields.flags, value, with_cas.then_some(fields.cas.0));
                        } else {
                            let ItemValue { flags, value } = ItemValue::decode(bytes);
                            writer.value(key, flags, value, None);
                        }
                        context.count_retrieval(touches, true);
                    }
                    Ok(_) => context.count_retrieval(touches, false),
                    // The line after the last pair says it.
                    Err(_) => {}
                }
            }
            Action::Item(item) => {
                let form = &items[*item as usize].form;
                let response = match response {
                    Ok(reply) => reply,
                    Err(error) => {
                        if !matches!(form, Form::Text(_, true)) {
                            write_unserved(error, output);
                        }
                        return;
                    }
                };
                match form {
                    Form::Text(form, is_quiet) => {
                        let begin = output.len();
                        form.write(response, output, context);
                        if *is_quiet {
                            output.truncate(begin);
                        }
                    }
                    Form::Meta(form) => {
                        form.write(
                            response,
                            self.key.of(input),
                            ReturnFlags::new(self.flags.of(input)),
                            output,
                            context,
                        );
                    }
                    Form::Debug => write_debug(response, self.key.of(input), output, context),
                }
            }
            _ => {}
        }
    }

    /// Writes the part of the reply that follows all operations. `is_refused` says that one of them was. Returns the login of
    /// a client that has sent its password.
    pub(super) fn finish(
        &self,
        is_refused: bool,
        login: &Login,
        input: &[u8],
        output: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Option<Login> {
        context.account.spend(if self.operation_count == 0 { OPERATION_WORK } else { 0 });
        let before = output.len();
        let mut writer = ReplyWriter::new(output);
        let mut status = |status, is_quiet: bool| {
            if !is_quiet {
                writer.status(status);
            }
        };
        match &self.action {
            Action::Retrieve { .. } if is_refused => write_unserved(WireError::Busy, output),
            Action::Retrieve { .. } => status(Status::End, false),
            Action::Get | Action::Set { .. } | Action::Item(_) => {}
            Action::Flush { is_quiet, .. } => {
                context.count(Count::Flushes);
                status(Status::Ok, *is_quiet);
            }
            Action::Refuse { error, is_quiet } => {
                if !is_quiet {
                    writer.error(*error);
                }
            }
            Action::Authenticate { is_quiet } => {
                return self.log_in(*is_quiet, input, output, context);
            }
            Action::Deny { reason, is_quiet } => {
                let text: &[u8] = match *reason {
                    Denied::Rate => b"SERVER_ERROR the user has had all operations or bytes of this second\r\n",
                    Denied::Command(name) => {
                        note_denied(Reason::Command, name.text().as_bytes(), login, context);
                        b"CLIENT_ERROR the user has no permission for this command\r\n"
                    }
                    Denied::Key(key) => {
                        note_denied(Reason::Key, key.of(input), login, context);
                        b"CLIENT_ERROR the user has no permission for a key\r\n"
                    }
                    Denied::TooManyKeys => {
                        b"CLIENT_ERROR a user with key patterns sends at most 1024 keys in a command\r\n"
                    }
                };
                output.extend_from_slice(if *is_quiet { b"" } else { text });
            }
            Action::Lock => output.extend_from_slice(b"CLIENT_ERROR unauthenticated\r\n"),
            Action::Statistics(Statistics::Reset) => {
                context.shared.reset_memcached_totals(context.account);
                status(Status::Reset, false);
            }
            Action::Statistics(statistics) => {
                memcached_statistics::write(*statistics, context.shared, &mut writer);
                writer.status(Status::End);
                // Each line is the sum of a counter of each shard.
                let size = output.len() - before;
                context.account.spend(TEXT_WORK * size + size_of::<Metrics>() * context.shared.all_metrics().count());
            }
            Action::Version => writer.version(MEMCACHED_VERSION),
            Action::Verbosity { is_quiet } => status(Status::Ok, *is_quiet),
            Action::NoOperation => status(Status::MetaNoOperation, false),
            Action::Quit => context.outcome.closing = true,
            Action::Close => {
                context.shared.metrics(context.shard).protocol_errors.add(1);
                context.outcome.closing = true;
            }
        }
        None
    }

    /// Checks the user and the password that the client has sent, and writes the reply.
    fn log_in(&self, is_quiet: bool, input: &[u8], output: &mut Vec<u8>, context: &Context<'_>) -> Option<Login> {
        let address = context.shared.clients().get(&context.connection).map(|client| client.address.ip());
        match context.shared.access.log_in_joined(self.value.of(input), address?, context.now) {
            Ok(login) => {
                context.note_user(login.name());
                if !is_quiet {
                    ReplyWriter::new(output).status(Status::Stored);
                }
                Some(login)
            }
            Err(refused) => {
                context.shared.metrics(context.shard).passwords_refused.add(1);
                let user = self.value.of(input).split(|byte| *byte == b' ').next().unwrap_or_default();
                if refused.is_told {
                    note_refused_login(user, "set", context);
                }
                output.extend_from_slice(match refused.reason {
                    LoginRefusal::Wrong => b"CLIENT_ERROR authentication failure\r\n",
                    LoginRefusal::TooManyGuesses => {
                        &b"CLIENT_ERROR too many wrong passwords from this address: try again in a few seconds\r\n"[..]
                    }
                    LoginRefusal::Full => b"CLIENT_ERROR the user has too many connections\r\n",
                });
                None
            }
        }
    }
}

impl TextForm {
    /// Writes the reply to a command on a key.
    fn write(self, reply: Reply<'_>, output: &mut Vec<u8>, context: &mut Context<'_>) {
        let mut writer = ReplyWriter::new(output);
        let is_found = matches!(reply, Reply::Value(_) | Reply::Done);
        match (self, reply) {
            (_, Reply::Failed(error)) => writer.error(error_of(error)),
            (TextForm::Store { mode, has_cas }, reply) => {
                writer.status(context.count_store(mode, has_cas, reply));
            }
            (TextForm::TooLarge, _) => writer.error(ErrorReply::TooLarge),
            (TextForm::Delete, _) => {
                context.count(if is_found { Count::DeleteHits } else { Count::DeleteMisses });
                writer.status(if is_found { Status::Deleted } else { Status::NotFound });
            }
            (TextForm::Touch, _) => {
                context.count_retrieval(true, is_found);
                writer.status(if is_found { Status::Touched } else { Status::NotFound });
            }
            (TextForm::Arithmetic(direction), Reply::Value(bytes)) => {
                context.count_arithmetic(direction, true);
                output.extend_from_slice(ItemFields::decode(bytes).1);
                output.extend_from_slice(b"\r\n");
            }
            (TextForm::Arithmetic(direction), _) => {
                context.count_arithmetic(direction, false);
                writer.status(Status::NotFound);
            }
        }
    }
}

impl MetaForm {
    /// Writes the reply of a retrieval that has found an item.
    fn write_found(
        self,
        bytes: &[u8],
        key: &[u8],
        returned: ReturnFlags<'_>,
        writer: &mut ReplyWriter<'_>,
        context: &mut Context<'_>,
    ) {
        let (fields, value) = ItemFields::decode(bytes);
        context.count_if(fields.is_created, Count::Items);
        let item = MetaItem {
            key,
            // As in memcached, only this command returns the key in the form in which it was stored.
            is_base64: fields.has_base64_key,
            size: Some(fields.size as usize),
            time_to_live: Some(self.time_to_live(&fields, context)),
            cas: Some(fields.cas.0),
            flags: Some(fields.flags),
            is_hit: Some(fields.was_fetched),
            is_won_by_other: fields.is_won_by_other,
            is_stale: fields.is_stale,
            is_won: fields.is_won,
            ..MetaItem::default()
        };
        match self.returns_value {
            true => writer.meta_value(value, returned, &item),
            false => writer.meta(MetaCode::Done, returned, &item),
        }
    }

    /// Writes the reply to a meta command on a key.
    fn write(
        mut self,
        reply: Reply<'_>,
        key: &[u8],
        returned: ReturnFlags<'_>,
        output: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) {
        let mut writer = ReplyWriter::new(output);
        let mut item = MetaItem { key, is_base64: self.is_base64, ..MetaItem::default() };
        let code = match (self.kind, reply) {
            (_, Reply::Failed(error)) => return writer.error(error_of(error)),
            (MetaKind::Get { touches }, Reply::Value(bytes)) => {
                context.count_retrieval(touches, true);
                return self.write_found(bytes, key, returned, &mut writer, context);
            }
            (MetaKind::Get { .. }, _) => {
                // As in memcached, even if the command has an expiry.
                context.count_retrieval(false, false);
                MetaCode::Miss
            }
            (MetaKind::Store { mode, has_cas }, reply) => {
                item.cas = Some(if let Reply::Value(bytes) = reply { ItemFields::decode(bytes).0.cas.0 } else { 0 });
                match context.count_store(mode, has_cas, reply) {
                    Status::Stored => MetaCode::Done,
                    Status::Exists => MetaCode::Exists,
                    Status::NotFound => MetaCode::NotFound,
                    _ => MetaCode::NotStored,
                }
            }
            (MetaKind::Arithmetic(direction), Reply::Value(bytes)) => {
                let (fields, value) = ItemFields::decode(bytes);
                match fields.is_created {
                    true => context.count(Count::Items),
                    false => context.count_arithmetic(direction, true),
                }
                item.cas = Some(fields.cas.0);
                item.time_to_live = Some(self.time_to_live(&fields, context));
                // As in memcached, the reply about a new item is not usual.
                self.is_quiet &= !fields.is_created;
                if self.returns_value {
                    if !self.is_quiet {
                        writer.meta_value(value, returned, &item);
                    }
                    return;
                }
                MetaCode::Done
            }
            (MetaKind::Delete { is_invalidation }, Reply::Done) => {
                context.count_if(!is_invalidation, Count::DeleteHits);
                MetaCode::Done
            }
            (MetaKind::Arithmetic(_), Reply::Exists) => MetaCode::Exists,
            (MetaKind::Delete { .. }, reply) => {
                context.count(Count::DeleteMisses);
                if reply == Reply::Exists { MetaCode::Exists } else { MetaCode::NotFound }
            }
            (MetaKind::Arithmetic(direction), _) => {
                context.count_arithmetic(direction, false);
                MetaCode::NotFound
            }
        };
        let is_usual = match self.kind {
            MetaKind::Get { .. } => code == MetaCode::Miss,
            _ => code == MetaCode::Done,
        };
        if !(self.is_quiet && is_usual) {
            writer.meta(code, returned, &item);
        }
    }

    /// Returns the seconds until the item expires, or -1 if it never does: before or after the command has changed it.
    fn time_to_live(self, fields: &ItemFields, context: &Context<'_>) -> i64 {
        let expiry = match fields.is_created {
            true if self.is_ttl_before_create => None,
            true => fields.expiry,
            false => Exptime::at(self.expiry_after, milliseconds(context.time)).apply(fields.expiry),
        };
        expiry.map_or(-1, |expiry| seconds_until(expiry, context))
    }
}

/// Returns the seconds until a time. A part of a second counts as one.
fn seconds_until(expiry: Expiry, context: &Context<'_>) -> i64 {
    let now = context.time.milliseconds().cast_unsigned();
    expiry.milliseconds().saturating_sub(now).div_ceil(1000) as i64
}

/// Returns the error reply for an error of the cache.
fn error_of(error: OperationError) -> ErrorReply {
    match error {
        OperationError::NotAnInteger => ErrorReply::NotNumeric,
        OperationError::KeyEmpty | OperationError::KeyTooLong => ErrorReply::Format,
        _ => ErrorReply::OutOfMemory,
    }
}

/// Writes the reply to a command that never reached a cache.
fn write_unserved(error: WireError, output: &mut Vec<u8>) {
    output.extend_from_slice(match error {
        WireError::Busy => b"SERVER_ERROR the server is busy: send the command again later\r\n",
        _ => b"SERVER_ERROR the command was not executed\r\n",
    });
}

/// Writes the reply to `me`.
fn write_debug(reply: Reply<'_>, key: &[u8], output: &mut Vec<u8>, context: &Context<'_>) {
    context.count(Count::Metas);
    let mut writer = ReplyWriter::new(output);
    let Reply::Value(bytes) = reply else {
        return writer.meta(MetaCode::Miss, ReturnFlags::new(b""), &MetaItem::default());
    };
    let (fields, _) = ItemFields::decode(bytes);
    let flags_size = if fields.flags == 0 { 0 } else { FLAGS_SIZE };
    writer.meta_debug(&MetaDebug {
        key,
        is_base64: fields.has_base64_key,
        time_to_live: fields.expiry.map(|expiry| seconds_until(expiry, context).cast_unsigned()),
        idle: 0,
        cas: fields.cas.0,
        is_hit: fields.was_fetched,
        size: ITEM_OVERHEAD + flags_size + key.len() + fields.size as usize,
    });
}

impl Context<'_> {
    /// Counts a command of memcached's protocol, or its outcome.
    #[inline]
    fn count(&self, count: Count) {
        self.count_many(count, 1);
    }

    #[inline]
    fn count_many(&self, count: Count, number: u64) {
        self.shared.metrics(self.shard).memcached.add(count, number);
    }

    fn count_if(&self, condition: bool, count: Count) {
        if condition {
            self.count(count);
        }
    }

    /// Counts one key of a retrieval, which memcached counts in one of two groups.
    #[inline]
    fn count_retrieval(&self, touches: bool, is_hit: bool) {
        let [command, hit, miss] = match touches {
            true => [Count::Touches, Count::TouchHits, Count::TouchMisses],
            false => [Count::Gets, Count::GetHits, Count::GetMisses],
        };
        self.count(command);
        self.count(if is_hit { hit } else { miss });
    }

    /// Counts a store. Returns its outcome.
    fn count_store(&self, mode: StoreMode, has_cas: bool, reply: Reply<'_>) -> Status {
        let needs_number = has_cas && matches!(mode, StoreMode::Set | StoreMode::Replace);
        self.count(Count::Sets);
        if needs_number {
            self.count(match reply {
                Reply::Exists => Count::CasOthers,
                Reply::NotFound => Count::CasMisses,
                _ => Count::CasHits,
            });
        }
        match reply {
            Reply::Exists if mode != StoreMode::Add => Status::Exists,
            Reply::NotFound if needs_number => Status::NotFound,
            Reply::Exists | Reply::NotFound => Status::NotStored,
            _ => {
                self.count(Count::Items);
                Status::Stored
            }
        }
    }

    fn count_arithmetic(&self, direction: Direction, is_hit: bool) {
        self.count(match (direction, is_hit) {
            (Direction::Increment, true) => Count::IncrementHits,
            (Direction::Increment, false) => Count::IncrementMisses,
            (Direction::Decrement, true) => Count::DecrementHits,
            (Direction::Decrement, false) => Count::DecrementMisses,
        });
    }
}
